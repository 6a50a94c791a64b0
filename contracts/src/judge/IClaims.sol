// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

enum Outcome {
    NONE,
    HOLDER_LOST,
    CHALLENGER_LOST,
    SENT_HOME // never played to an end: pushed out, too late, or the holder lost another one
}

/// What somebody said about its training, and what the chain knows of it: enough to play a game
/// about it. A segment says: these steps lead from `initialState` to `closing`, and their norms and
/// losses hash to `workTag`. An update proof says: what was sent (`updateRoot`) follows from the
/// last state (`initialState`), whose moments are those revealed.
struct Claim {
    address holder; // who made the claim, and defends it
    bytes32 set; // the bond that the claim stands on: a slash ends every game about the same set
    bytes32 position; // the pay that a game holds up
    bytes32 program; // Terms.program; zero where that has no trace of a step, and no game can be played
    bool isUpdateProof;
    uint16 seat;
    uint32 round;
    uint32 segment; // its number in the round; of an update proof that of the last one that was done
    bytes32 dataSeed;
    bytes32 initialState; // state digest before the segment; of an update proof, after the last one
    bytes32 closing; // state digest after the segment; of an update proof zero
    bytes32 workTag; // of the segment, without a mask; of an update proof zero, and where no key shows it
    bytes32 updateRoot; // of an update proof; else zero
    bytes32 modelParams; // params root of the global state that the round began with
    bytes32 modelExponents; // SHA-256 of that state's exponents, as in its digest
    uint64 windowEnd; // unix seconds; challenges are taken until then
    uint128 lowestBond; // of a challenge; at least 1
    uint32 holderSeconds; // allowance for the whole game: censorship, a replay of the round, one trace
    uint32 challengerSeconds;
    uint32 moveSeconds; // of each response, not charged
}

/// @title The contract that holds claims and the bonds that they stand on.
interface IClaims {
    /// @notice The claim that the evidence shows. Reverts where it shows none that can be
    /// challenged: not revealed, not settled, of a segment that was not done, without a program, of
    /// a holder that was slashed, or out of its time.
    function claim(bytes calldata evidence) external view returns (Claim memory);

    /// @notice The holder lost a game: its bond is slashed, a share to the challenger, the rest
    /// burnt, and the pay of `position` (and of whatever else stands on the set and is not final)
    /// is lost. Only the game calls it, once a set.
    /// @param position the lowest of the game's and of those that waited behind it: a set's
    /// positions are in the order of rounds
    /// @param challenger who is given a share; zero for nobody
    /// @dev It must do what can still be done and not revert, whatever happened to set or holder
    /// meanwhile. It has 2,000,000 gas; the game goes on without it if it reverts all the same.
    function slash(bytes32 set, bytes32 position, address challenger) external;

    /// @notice Whether the account is a drawn auditor that opened, of the claim's seat, that just
    /// what is claimed differs. It may revert where it is not.
    /// @param auditor its id
    /// @param body what it opened
    function isOwed(Claim calldata c, address account, uint32 auditor, bytes calldata body) external view returns (bool);

    /// @notice Where what games owe an account is sent. It must not revert.
    function payeeOf(address account) external view returns (address);
}

/// @title What the holder of claims asks the game.
interface IGame {
    /// @notice Games about this set that are waiting or being played.
    function openGames(bytes32 set) external view returns (uint256);

    /// @notice Whether a holder of this set lost a game.
    function isSlashed(bytes32 set) external view returns (bool);

    /// @notice The lowest position of the set's open games; the largest word where there are none.
    function lowestOpen(bytes32 set) external view returns (bytes32);

    /// @notice What a game is about, and how it ended.
    /// @return position whose pay it holds up; zero where there is no such game
    /// @return outcome NONE where none is known yet
    function verdictOf(uint256 id) external view returns (bytes32 position, Outcome outcome);

    /// @notice Whether the account challenged that, or found the queue full (`crowdedOut`).
    /// @param said keccak of challenger, position, segment and whether it is the update proof, as
    /// ABI words
    function wasChallenged(bytes32 said) external view returns (bool);
}
