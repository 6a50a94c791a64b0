// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../types/Types.sol";
import {Params} from "../interfaces/IConfig.sol";

/// @title What terms the contracts accept at all.
library TermsCheck {
    uint256 internal constant MAX_SEATS = 256;
    uint256 internal constant MAX_VERIFIERS = 32;
    uint256 internal constant MAX_ATTEMPTS = 8;
    uint256 internal constant MAX_BEACON_DELAY = 64;

    error TermOutOfRange(string name, uint256 value, uint256 lowest, uint256 highest);
    error QuorumOutOfRange(uint256 numerator, uint256 denominator);

    function requireValid(Terms calldata t, Params memory p, uint64 unbondingDelay) internal view {
        _requireCounts(t);
        _requireWindows(t, unbondingDelay);
        _between("steps", t.steps, 1, type(uint32).max);
        _between("tokensPerStep", t.tokensPerStep, 1, type(uint64).max / t.steps);
        _between("providerBond", t.providerBond, p.minProviderBond, type(uint128).max);
        _between("verifierBond", t.verifierBond, p.minVerifierBond, type(uint128).max);
        _between("reportBond", t.reportBond, 1, type(uint128).max);
    }

    function _requireCounts(Terms calldata t) private pure {
        _between("rounds", t.rounds, 1, type(uint32).max - 1);
        _between("seats", t.seats, 1, MAX_SEATS);
        _between("minProviders", t.minProviders, 1, t.seats);
        _between("maxVerifiers", t.maxVerifiers, 1, MAX_VERIFIERS);
        _between("minVerifiers", t.minVerifiers, 1, t.maxVerifiers);
        _between("attempts", t.attempts, 1, MAX_ATTEMPTS);
        _between("auditors", t.auditors, 1, t.maxVerifiers);
        _between("beaconDelay", t.beaconDelay, 1, MAX_BEACON_DELAY);
        bool aboveHalf = uint256(t.quorumNumerator) * 2 > t.quorumDenominator;
        if (!aboveHalf || t.quorumNumerator > t.quorumDenominator) {
            revert QuorumOutOfRange(t.quorumNumerator, t.quorumDenominator);
        }
    }

    function _requireWindows(Terms calldata t, uint64 unbondingDelay) private view {
        _between("trainSeconds", t.trainSeconds, 1, type(uint32).max);
        _between("revealSeconds", t.revealSeconds, 1, type(uint32).max);
        _between("reportSeconds", t.reportSeconds, 1, type(uint32).max);
        _between("confirmSeconds", t.confirmSeconds, 1, type(uint32).max);
        _between("attestSeconds", t.attestSeconds, 1, type(uint32).max);
        _between("disputeSeconds", t.disputeSeconds, 1, type(uint32).max);
        _between("expiry", t.expiry, block.timestamp + 1, type(uint64).max);
        uint256 windows = uint256(t.trainSeconds) + t.revealSeconds + t.reportSeconds + t.confirmSeconds
            + t.attestSeconds + t.disputeSeconds;
        _between("windows", windows * t.attempts, 1, unbondingDelay / 2);
    }

    function _between(string memory name, uint256 value, uint256 lowest, uint256 highest) private pure {
        if (value < lowest || value > highest) revert TermOutOfRange(name, value, lowest, highest);
    }
}
