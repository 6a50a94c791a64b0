// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {Params} from "../interfaces/IConfig.sol";
import {ProgramReader} from "../judge/ProgramReader.sol";
import "../types/Types.sol";

/// @title What terms the contracts accept at all. SPEC-ROUNDS.md, 12.
library TermsCheck {
    uint256 internal constant MAX_MEMBERS = 256;
    uint256 internal constant MAX_SEGMENTS = 1024;
    uint256 internal constant MAX_SEGMENT_STEPS = ProgramReader.MOST_SHOWN / 44; // with one micro-batch each
    uint256 internal constant LOWEST_RATE = 15;
    uint256 internal constant LONGEST_ROUND = 60 days;
    uint256 internal constant LONGEST_JOB = 5 * 365 days;
    uint256 internal constant MAX_MOVES = 40;
    uint256 internal constant MIN_MOVES = 10; // that an allowance has time for

    error TermOutOfRange(string name, uint256 value, uint256 lowest, uint256 highest);

    function requireValid(Terms calldata t, Params memory p, uint256 longestGame) internal view {
        _requireCounts(t);
        _requireWindows(t, p.minWindow);
        _requireClocks(t, p, longestGame);
        _between("steps", t.steps, 1, type(uint32).max);
        _between("segmentSteps", t.segmentSteps, 1, t.steps < MAX_SEGMENT_STEPS ? t.steps : MAX_SEGMENT_STEPS);
        _between("steps", t.steps % t.segmentSteps, 0, 0);
        _between("segments", t.steps / t.segmentSteps, 1, MAX_SEGMENTS);
        _between("tokensPerStep", t.tokensPerStep, 1, type(uint64).max / t.steps);
        _between("providerBond", t.providerBond, p.minProviderBond, type(uint128).max);
        _between("verifierBond", t.verifierBond, p.minVerifierBond, type(uint128).max);
        // Without a judge an opened *mismatch* could neither be refuted nor played, and would earn
        // its fee.
        _between("program", uint256(t.program), 1, type(uint256).max);
    }

    function _requireCounts(Terms calldata t) private pure {
        _between("rounds", t.rounds, 1, type(uint24).max - 1); // a holder's rounds are numbers of 24 bits
        _between("seats", t.seats, 1, MAX_MEMBERS);
        _between("minProviders", t.minProviders, 1, t.seats);
        _between("slots", t.slots, 1, MAX_MEMBERS);
        _between("minVerifiers", t.minVerifiers, 1, t.slots);
        _between("f", t.f, 0, t.seats < 4 ? 0 : (uint256(t.seats) - 1) / 3);
        _between("auditRate", t.auditRate, 0, LOWEST_RATE);
        _between("lastRate", t.lastRate, 0, LOWEST_RATE);
        // Where everybody is audited, nothing is won by what is retained.
        bool isSure = t.f == 0 || t.auditRate == 0;
        _between("rateSteps", t.rateSteps, 0, isSure ? 0 : LOWEST_RATE - t.auditRate);
    }

    function _requireWindows(Terms calldata t, uint256 least) private view {
        uint256 highest = type(uint32).max;
        _between("trainSeconds", t.trainSeconds, least, highest);
        _between("revealSeconds", t.revealSeconds, least, highest);
        _between("mergeSeconds", t.mergeSeconds, least, highest);
        _between("auditSeconds", t.auditSeconds, least, highest);
        _between("openSeconds", t.openSeconds, least, highest);
        _between("keySeconds", t.keySeconds, least, highest);
        _between("readySeconds", t.readySeconds, least, highest);
        _between("claimSeconds", t.claimSeconds, least, highest);
        _between("windowSeconds", t.windowSeconds, 2 * uint256(t.gameSeconds), highest);
        uint256 windows = uint256(t.trainSeconds) + t.revealSeconds + t.mergeSeconds + t.auditSeconds + t.openSeconds
            + t.keySeconds + t.windowSeconds;
        _between("windows", windows, 1, LONGEST_ROUND);
        _between("expiry", t.expiry, block.timestamp + 1, block.timestamp + LONGEST_JOB);
    }

    /// @dev Whoever is late in a game loses a bond. So the allowance, which a game has once, is as
    /// long as a chain may stand still or keep a transaction out; a move's own seconds are not, or
    /// forty moves would hold a window open for weeks.
    function _requireClocks(Terms calldata t, Params memory p, uint256 longestGame) private pure {
        uint256 least = MIN_MOVES * p.minMove;
        if (least < p.minWindow) least = p.minWindow;
        if (least < p.minPunishable) least = p.minPunishable;
        _between("gameSeconds", t.gameSeconds, least, type(uint32).max);
        _between("moveSeconds", t.moveSeconds, p.minMove, type(uint32).max);
        _between("game", 2 * uint256(t.gameSeconds) + MAX_MOVES * t.moveSeconds, 1, longestGame);
    }

    function _between(string memory name, uint256 value, uint256 lowest, uint256 highest) private pure {
        if (value < lowest || value > highest) revert TermOutOfRange(name, value, lowest, highest);
    }
}
