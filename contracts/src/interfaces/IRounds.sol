// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IRoundsEvents} from "./IRoundsEvents.sol";
import "../types/Types.sol";

/// @title The round state machine: who may say what, when, and what follows from it.
/// @notice Anyone may call `poke`, `settle`, `finalise` and `punish`; they only do what the rules already say.
interface IRounds is IRoundsEvents {
    /// @notice Moves a job whose deadline has passed, or whose beacon block is known, to its next phase.
    /// @dev Reverts with NothingToDo when nothing is due.
    function poke(uint256 jobId) external;
    /// @notice Binds a seat to its work before anyone shows theirs. Once a slot, only while the training window is open.
    /// @dev Warning: a commitment nobody can reveal counts as a miss. The last commit opens the reveals.
    /// @param commitment see `commitmentOf`; it binds chain, contract, slot, sender, contents and salt
    function commit(uint256 jobId, uint32 round, uint16 attempt, bytes32 commitment) external;
    /// @notice Opens a commitment. Nothing may be revealed after the window; not revealing costs a small cut.
    /// @dev The last reveal fixes the block whose hash chooses what is audited.
    function reveal(uint256 jobId, uint32 round, uint16 attempt, Reveal calldata reveal_) external;
    /// @notice One ballot a verifier and attempt, and from half time on one supplement to it that only adds.
    /// @dev Withheld data is challenged, not reported here. Every report locks Terms.reportBond of the caller's free
    /// stake; one that says what another said already is counted as agreeing with it and locks nothing. Warning: a
    /// finding on a segment that is later confirmed wrong, and a report that is refuted, cost a cut of the bond; the
    /// refuted report's bond is lost.
    /// @param findings segments whose replay gave every digest of the trace
    /// @param replayRoot commitment to the replays, for later disputes; passed on in the event
    function ballot(
        uint256 jobId,
        uint32 round,
        uint16 attempt,
        Finding[] calldata findings,
        Report[] calldata reports,
        bytes32 replayRoot
    ) external;
    /// @notice "I cannot fetch this block of the seat": files a WITHHELD report, which locks Terms.reportBond, or joins
    /// one that names the same block for the same segment. Verifiers of the snapshot, in the first three quarters of the
    /// report window, so that an answer always has the last quarter.
    /// @dev Whether the block belongs to the seat is for the vote: a challenge about another one is refuted and loses its
    /// bond. While a challenge is neither answered nor withdrawn the window does not close before its deadline.
    /// @param segment whose audit needs the block; 0xffff where it is the update's or the trace document's
    /// @param blockDigest SHA-256 of the block
    function challenge(uint256 jobId, uint32 round, uint16 attempt, uint16 seat, uint16 segment, bytes32 blockDigest)
        external;
    /// @notice "It is here now": takes the caller's part in a challenge back, while it is unanswered. Once everybody's is
    /// taken back there is nothing left to vote on, and the bond is free at once.
    function withdrawChallenge(uint256 jobId, uint32 round, uint16 attempt, uint16 index) external;
    /// @notice Anyone: puts the block of a challenge on the chain, in its event. Until the report window closes.
    /// @dev From then on not being able to fetch says nothing against the seat, and those who raised the challenge vote
    /// like everyone else. Warning: a large block is expensive; serving it costs nothing.
    function answerChallenge(uint256 jobId, uint32 round, uint16 attempt, uint16 index, bytes calldata block_) external;
    /// @notice One vote a verifier and attempt. Bit i speaks of report i; the three maps are disjoint.
    /// @dev A reporter agrees with its own reports already and may not vote on them, unless they were answered. On an
    /// answered challenge "cannot fetch" says: the segment is sound, but only the chain had the block. Warning: the losing
    /// side of a decided report is cut; who does not vote is absent.
    function vote(uint256 jobId, uint32 round, uint16 attempt, uint256 agree, uint256 disagree, uint256 cannotFetch)
        external;
    /// @notice Puts the caller's weight behind a verdict. Once a verifier and attempt, from the block after the cut on.
    /// @param proof what the job's attestation policy asks for; empty for counted transactions
    function attest(uint256 jobId, uint32 round, uint16 attempt, bytes32 verdictHash, bytes calldata proof) external;
    /// @notice Anyone: settles the round with the verdict that a quorum of the snapshot's weight signed.
    /// @dev A verdict can pay no more than the evidence supports, whoever signed it. Members change here, and the next
    /// round opens if there are enough of them.
    function settle(uint256 jobId, Verdict calldata verdict) external;
    /// @notice Anyone: makes the oldest settled round final once its dispute window is over. Its claims become payable.
    function finalise(uint256 jobId) external;
    /// @notice Anyone, once, after the round's dispute window: slashes what the round's evidence says.
    /// @dev Nothing the culprit does prevents it: its bond is held until then. The report's bond is returned or lost in
    /// the same call.
    /// @param index seat, verifier or report, as the offence says
    function punish(uint256 jobId, uint32 round, Offence offence, uint16 index) external;
    /// @notice Credits one seat (or verifier) of a round that ran out of attempts. See SPEC.md, section 14.
    function credit(uint256 jobId, uint32 round, Role role, uint16 index) external;

    /// @return what anyone could fold from the events; EVENTS.md says how
    function state(uint256 jobId) external view returns (RoundState memory);
    /// @return optimiser root of the holder's last accepted round; zero for a new holder or an empty seat
    function lastOptimiserRoot(uint256 jobId, uint16 seat) external view returns (bytes32);
    /// @return count rounds that are final
    /// @return claimsRoot the last final round's claims tree
    /// @return cumulativeTotal wei that all of them earned
    function finalRounds(uint256 jobId)
        external
        view
        returns (uint32 count, bytes32 claimsRoot, uint256 cumulativeTotal);
    /// @notice The commitment that `reveal_` opens in this slot.
    function commitmentOf(
        uint256 jobId,
        uint32 round,
        uint16 attempt,
        uint16 seat,
        address sender,
        Reveal calldata reveal_
    ) external view returns (bytes32);
    /// @notice What verifiers attest to.
    function verdictHash(uint256 jobId, uint32 round, uint16 attempt, Verdict calldata verdict)
        external
        view
        returns (bytes32);
}
