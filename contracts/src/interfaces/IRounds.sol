// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IRoundsEvents} from "./IRoundsEvents.sol";
import "../types/Types.sol";

/// @title The round state machine: who may say what, when, and what follows from it. SPEC-ROUNDS.md
/// is the rule.
interface IRounds is IRoundsEvents {
    /// @notice Anyone: moves a job on whose deadline has passed. Reverts with NothingToDo when
    /// nothing is due, and with Unseeded while the beacon does not know what the committee is drawn by.
    /// @custom:caller anyone, once
    function advance(uint256 jobId) external;
    /// @notice Binds a seat to its work before anyone shows theirs. The last commit opens the
    /// reveals.
    /// @dev Warning: a commitment nobody can reveal counts as a missed duty.
    /// @param seed data seed of the round: what was made for another one is refused
    /// @custom:caller the seat's holder
    function commit(uint256 jobId, uint16 seat, bytes32 seed, bytes32 commitment) external;
    /// @notice Opens a commitment. The last reveal fixes the next data seed and opens the merge.
    /// @param seed data seed of the round, which the commitment has to name, too
    /// @custom:caller the seat's holder
    function reveal(uint256 jobId, uint16 seat, bytes32 seed, Reveal calldata reveal_) external;
    /// @notice A committee member's vote: the seats whose update it has. Once a committee draw. The
    /// first one after the block in which the merge opened fixes the audit seed, by that block's
    /// hash.
    /// @param has seats; those that did not reveal count nothing
    /// @custom:caller the slot's holder
    function vote(uint256 jobId, uint16 slot, bytes32 seed, uint256 has) external;
    /// @notice Anyone, from the block after the one in which the merge opened: fixes the audit
    /// seed, if no vote has. Where the chain has forgotten that block's hash, after 256 blocks or
    /// 8,191 (EIP-2935), this notes the present block instead.
    /// @custom:caller anyone, once
    function seedAudit(uint256 jobId) external;
    /// @notice Anyone: ends the merge with what two thirds of the committee signed, and opens the
    /// next round.
    /// @param slots of the committee draw's votes, a byte each, in the chain's order
    /// @param has the votes themselves
    /// @param shown the committee's accounts in it, by ascending slot, need not be there: they are
    /// cheaper shown than read, once a whole pool has settled a round and is the next one's
    /// committee too
    /// @custom:caller anyone, once
    function settle(uint256 jobId, bytes calldata slots, uint256[] calldata has, Certified calldata shown) external;
    /// @notice Anyone, from the job's expiry on, once the committee draw's deadline has passed:
    /// pays what was available and closes the job. Before it where somebody leaves, or the submitter
    /// has cancelled, once committee draws have taken 2 mergeSeconds and a window.
    /// @param slots of the committee draw's votes, a byte each, in the chain's order
    /// @param has the votes themselves
    /// @custom:caller anyone, once
    function settleLate(uint256 jobId, bytes calldata slots, uint256[] calldata has) external;
    /// @notice Adds a member's signature of the last certificate, until the next settlement and
    /// auditEnd.
    /// @param id of a member of the committee that settled
    /// @custom:caller anyone, once
    function sign(uint256 jobId, RoundRecord calldata record, uint32 id, bytes calldata certificate) external;

    /// @custom:caller anyone
    function state(uint256 jobId) external view returns (RoundState memory);
    /// @return the block by whose seed the job's next draw is; 0 where no draw waits for a seed
    /// @custom:caller anyone
    function awaitedBlock(uint256 jobId) external view returns (uint256);
    function timesOf(uint256 jobId, uint32 round) external view returns (Times memory);
    /// @return the first 26 bytes of the hash of a settled round's record; zero before
    function recordOf(uint256 jobId, uint32 round) external view returns (bytes32);
    /// @return pay seats whose pay stands
    /// @return lost seats that earned and are not paid: all that revealed but those, of a round
    /// that merged nothing, that were short
    /// @return signed slots
    function rowsOf(uint256 jobId, uint32 round) external view returns (uint256 pay, uint256 lost, uint256 signed);
    /// @notice Who holds the seat, or held it last.
    function seatHolder(uint256 jobId, uint16 seat) external view returns (address account, uint32 id, uint32 from);
    /// @return entries of the table of rates that the seat is drawn more rarely by in the round that
    /// runs
    function stepsOf(uint256 jobId, uint16 seat) external view returns (uint256);
    /// @notice Who holds the slot in the round that runs, or held it last.
    function slotHolder(uint256 jobId, uint16 slot) external view returns (address account, uint32 id, uint32 from);
    /// @return slots that gave no vote of the round
    function absentOf(uint256 jobId, uint32 round) external view returns (uint256);
    /// @return segments that the seat revealed
    function segmentsOf(uint256 jobId, uint32 round, uint16 seat) external view returns (uint256);
    /// @notice All that an audit asks about a round.
    function auditOf(uint256 jobId, uint32 round) external view returns (Audit memory);
    function policyOf(uint256 jobId) external view returns (address);
    /// @notice What a member of a committee signs: the typed data `Certificate` (SPEC-ROUNDS.md, 2).
    /// @param votes the accumulator, with its last 4 bytes zero
    function certificateHash(uint256 jobId, uint32 round, bytes32 seed, bytes32 votes, Verdict calldata verdict)
        external
        view
        returns (bytes32);
    /// @return unix seconds from which on no lock of the job holds
    /// @custom:caller anyone
    function absoluteEnd(uint256 jobId) external view returns (uint256);
}
