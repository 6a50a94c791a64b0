// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {HolderWord} from "../types/Holders.sol";
import "../types/Types.sol";

/// What a settled job may have to pay or burn, in units.
struct Earned {
    uint64 segments;
    uint64 signatures;
    uint32 duties;
    uint32 dutiesLeft; // that the seeds of rounds to come may draw
    uint64 closedAt; // unix seconds; 0 while it runs
}

/// @title What the other contracts ask of the rounds contract.
interface IRoundsHooks {
    /// @notice Only the escrow, when a job is created.
    function open(uint256 jobId, Terms calldata terms, address policy) external;
    /// @notice Only the escrow. Closes a waiting job at once, any other when its round ends.
    function cancel(uint256 jobId) external;
    function statusOf(uint256 jobId) external view returns (JobStatus status, uint32 settled, Earned memory earned);

    /// @notice Only members, all below. From which round on the new holder counts: from MERGE on
    /// the next one, before it the running one, which counts with it only if it is void and opens
    /// again.
    function join(uint256 jobId, uint16 seat, address account, uint32 id) external returns (uint32 from);
    /// @notice The seat is not held for the next round.
    /// @return to the first round that the holder does not count in
    function unseat(uint256 jobId, uint16 seat) external returns (uint32 to);
    /// @notice The seat does not count any more, unless it has committed. Never reverts.
    /// @param root what the holder computed; zero for a slash
    /// @return to as of `unseat`, or the round itself
    function stop(uint256 jobId, uint16 seat, address account, bytes32 root) external returns (uint32 to);
    /// @notice Takes note that a seat's penalty is taken.
    /// @return id of who missed
    /// @return to the first round that it does not count in: the running one, since it missed that,
    /// or one before
    /// @return next the round behind the running one; while none runs, the one that opens
    function clearOwing(uint256 jobId, uint16 seat) external returns (uint32 id, uint32 to, uint32 next);
    /// @notice Lowers the rate that a seat's holder is drawn at by so many steps in all.
    /// @return from the first round that it counts in
    function season(uint256 jobId, uint16 seat, uint8 steps) external returns (uint32 from);
    function enter(uint256 jobId, uint16 slot_, address account, uint32 id) external returns (uint32 from);
    function setReady(uint256 jobId, uint16 slot_) external;
    /// @return to the first round that the member does not count in
    function vacate(uint256 jobId, uint16 slot_) external returns (uint32 to);

    /// @notice Only audits and late votes: takes or gives back the pay of a seat that earned.
    function setPay(uint256 jobId, uint32 round, uint16 seat, bool isPaid) external;

    /// @notice Only strikes, once a round: nobody is paid for having signed it, nobody signs it any
    /// more, and the job ends as if cancelled.
    /// @return signers slots that had signed it
    function strike(uint256 jobId, uint32 round, address by) external returns (uint256 signers);

    /// @notice Segments of the seat's rounds from … to, whose windows must be over; from `lostFrom`
    /// on they are lost.
    function segmentsPaid(uint256 jobId, uint16 seat, uint32 from, uint32 to, uint32 lostFrom)
        external
        view
        returns (uint256 paid, uint256 lost);
    /// @notice Segments that were earned and are not paid, in rounds whose windows must be over.
    function segmentsUnpaid(uint256 jobId, uint32 from, uint32 to) external view returns (uint256);
    function signaturesOf(uint256 jobId, uint16 slot_, uint32 from, uint32 to) external view returns (uint256);
}

/// @title What they ask of the members contract.
interface IMembersHooks {
    function holderOf(uint256 jobId, Role role, uint32 id) external view returns (Holder memory);
    /// @return the first round whose pay a slash took
    function lostFrom(uint256 jobId, Role role, uint32 id) external view returns (uint32);
    /// @notice Slashed holders whose rounds are not all claimed.
    function openSlashes(uint256 jobId) external view returns (uint256);

    /// @notice Only escrow: the holder's pay before `to` is claimed.
    /// @return before the holder as it was
    function noteClaim(uint256 jobId, Role role, uint32 id, uint32 to) external returns (HolderWord before);
    /// @notice Only escrow: of what a seat's holder is paid, a part is retained as long as it may
    /// be slashed.
    /// @return custody where it is to be sent
    /// @return retained wei, which count as the holder's bond at once
    function retain(uint256 jobId, uint32 id, uint256 earned) external returns (address custody, uint256 retained);
    /// @notice Only escrow: a slashed holder's rounds are claimed up to its last.
    function closeSlash(uint256 jobId) external;
    /// @notice Only audits: penalises a missed duty of a holder. Reverts if it was penalised
    /// before.
    function penalise(uint256 jobId, Role role, uint32 id, uint32 round, MissedDuty kind) external;
    /// @notice Only audits: an accusation of a seat that was not played takes half of what is left
    /// of the member's bond.
    function slashDropped(uint256 jobId, uint32 id, uint32 round, uint16 seat) external;
    /// @notice Only late votes: two certificates of one round take a member's whole bond, burnt.
    function slashEquivocated(uint256 jobId, uint32 id, uint32 round) external;
    /// @notice Only strikes: a merge that is not what the updates give takes half of what is left of
    /// a signer's bond.
    /// @param by whoever showed it, and has a winner's share
    function slashMismerged(uint256 jobId, uint32 id, uint32 round, address by) external;
    /// @notice Only claims, once a holder: a lost game. What can still be done is done.
    function slash(uint256 jobId, Role role, uint32 id, uint32 lowestRound, address winner) external;
}

/// @title What they ask of audits.
interface IAuditsHooks {
    /// @return duties of the member's rounds from … to that stand
    function dutiesOf(uint256 jobId, address account, uint32 from, uint32 to) external view returns (uint256);
}

/// @title What audits ask of the escrow.
interface IJobsHooks {
    /// @notice Credits an account with a fee.
    function credit(uint256 jobId, address account, uint256 amount) external;
}
