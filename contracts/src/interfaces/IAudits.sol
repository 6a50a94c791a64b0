// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Shown} from "../libraries/Reveals.sol";
import "../types/Types.sol";

/// @title Audit reports, openings and keys of settled rounds, and the contest of one bit.
/// SPEC-ROUNDS.md, 8.
interface IAudits {
    /// @notice A verifier is bound to its audit report of a round.
    /// @param auditReport hash of its body and salt
    event AuditReportSealed(uint256 indexed jobId, address indexed account, uint32 indexed round, bytes32 auditReport);
    /// @notice A verifier opens its audit report.
    /// @param body 35 bytes a duty: seat, 0xffff or the first segment that differs, digest
    event Opened(uint256 indexed jobId, address indexed account, uint32 indexed id, uint32 round, bytes body);
    /// @notice The holder of a seat shows the key of its work tags' masks.
    event KeyShown(uint256 indexed jobId, address indexed account, uint32 indexed round, bytes32 key);
    /// @notice Another account showed a seat's key before the end of AUDIT, which burns its pay.
    /// @param by who showed it
    event Leaked(uint256 indexed jobId, address indexed by, uint16 indexed seat, uint32 round, bytes32 key);
    /// @notice An opened duty does not hold what the seat's key gives.
    /// @param by who said so
    /// @param id of the verifier that opened it
    event Contested(uint256 indexed jobId, address indexed by, uint32 id, uint32 round, uint16 indexed seat);
    /// @notice The fee of an opened *valid* waits for a game about what it is about.
    /// @param id of the verifier
    event Withheld(uint256 indexed jobId, uint32 indexed id, uint32 round, uint16 indexed seat, uint64 game);
    /// @notice A fee that waited is paid or lost.
    /// @param id of the verifier
    /// @param wrong whether its digest was a guess, or what it called valid false
    event ContestSettled(uint256 indexed jobId, uint32 indexed id, uint32 round, uint16 indexed seat, bool wrong);
    /// @notice A drawn seat showed no key in time, and loses the round's pay.
    event Struck(uint256 indexed jobId, uint32 indexed round, uint16 indexed seat);
    /// @notice A verifier said nothing about a drawn seat, as most of the round's auditors: one of
    /// its three excuses in the job.
    /// @param id of the verifier
    event Excused(uint256 indexed jobId, address indexed account, uint32 indexed id, uint32 round);
    /// @notice A verifier did not play what it said of a seat.
    /// @param id of the verifier
    event Dropped(uint256 indexed jobId, uint32 indexed id, uint32 round, uint16 indexed seat);
    /// @notice A seat was slashed that a verifier had said differs, which is paid its fee.
    /// @param id of the verifier
    event Proven(uint256 indexed jobId, uint32 indexed id, uint32 round, uint16 indexed seat);

    /// @notice A member's sealed audit report of a round's duties. The last one before auditEnd
    /// counts, so one that was made for another seed can be replaced. Warning: one that is sealed
    /// later replaces it, too, and cannot be opened.
    /// @custom:caller the slot's holder
    function sealAuditReport(uint256 jobId, uint32 round, bytes32 auditReport_) external;
    /// @notice Opens it, between auditEnd and openEnd. Every seat in it has to be a duty of the
    /// member.
    /// @param body 35 bytes a duty: seat, 0xffff or the first segment that differs, digest
    /// @custom:caller the slot's holder
    function open(
        uint256 jobId,
        uint32 round,
        uint32 id,
        RoundRecord calldata record,
        bytes calldata body,
        bytes32 salt
    ) external;
    /// @notice The holder of a seat shows the key of its work tags' masks. Warning: before auditEnd
    /// anyone can burn the pay. What is shown in the block of its settlement or before is
    /// none, and the last one counts.
    /// @custom:caller the seat's holder
    function key(uint256 jobId, uint32 round, bytes32 key_) external;
    /// @notice Anyone but the holder, before auditEnd: shows a key that it was told, which burns
    /// the seat's pay.
    /// @custom:caller anyone, once
    function leak(Shown calldata shown, bytes32 key_) external;
    /// @notice Anyone: an opened *valid* is not what the reveal's checkpoint commitments and the
    /// key give.
    /// @custom:caller anyone, once
    function contest(Shown calldata shown, uint32 id, bytes calldata body, bytes32 key_) external;
    /// @notice Anyone, before windowEnd: a game is about a round of a seat that an opened *valid* is
    /// about. Its fee waits, and is lost if the seat loses that game.
    /// @param gameId of a game that is not over, or that the seat lost; later in place of one that it
    /// has not lost
    /// @custom:caller anyone, once
    function withhold(uint256 jobId, uint32 round, uint32 id, uint32 seatId, uint64 gameId, bytes calldata body)
        external;
    /// @notice Anyone, once the seat's round is FINAL: a missed duty; or the fee back; or, where the
    /// seat lost a game about the round, nothing.
    /// @custom:caller anyone, once
    function settleContest(uint256 jobId, uint32 round, uint32 id, uint32 seatId) external;
    /// @notice Anyone, after keysEnd: a drawn seat that had not shown the committed key by then
    /// loses the round's pay and misses.
    /// @custom:caller anyone, once
    function reportMissingKey(Shown calldata shown) external;
    /// @notice Anyone, after openEnd: the auditor of a drawn seat said nothing about it. Where most
    /// auditors of the round said nothing it is after keysEnd, and an excuse while there is one.
    /// @param body what it opened; empty for nothing
    /// @custom:caller anyone, once
    function absent(
        uint256 jobId,
        uint32 round,
        uint32 id,
        uint16 seat,
        RoundRecord calldata record,
        bytes calldata body
    ) external;
    /// @notice Anyone, in the second half of the window: an opened *mismatch* that its author did
    /// not challenge.
    /// @custom:caller anyone, once
    function dropped(uint256 jobId, uint32 round, uint32 id, uint16 seat, uint32 seatId, bytes calldata body) external;
    /// @notice Anyone, once the seat's holder has been slashed, by whose game it may be: credits
    /// the author of an opened *mismatch* its fee.
    /// @custom:caller anyone, once
    function proven(uint256 jobId, uint32 round, uint32 id, uint32 seatId, bytes calldata body) external;
    /// @return from 0xffff for valid, else the first segment that differs
    /// @return digest what the member said of the seat; reverts unless the id counts in the round
    /// and opened that body
    function saidOf(uint256 jobId, uint32 round, uint32 id, uint16 seat, bytes calldata body)
        external
        view
        returns (uint16 from, bytes32 digest);
    function auditReportOf(uint256 jobId, uint32 round, address account) external view returns (bytes32);
    /// @return seats whose key another account showed before the end of AUDIT
    function leakedOf(uint256 jobId, uint32 round) external view returns (uint256);
}
