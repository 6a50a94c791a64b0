// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

/// @title What accounts sign: EIP-712 typed data, so that a wallet shows what it is. SPEC-ROUNDS.md, 2.
/// @dev The chain's number is asked each time: what was signed on one side of a fork is nothing on the other.
library TypedData {
    bytes32 private constant DOMAIN =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");
    bytes32 private constant NAME = keccak256("Atoll");
    bytes32 private constant VERSION = keccak256("1");
    bytes32 private constant ENROLMENT = keccak256("Enrolment(uint256 job,uint16 slot,uint128 bond,address account)");

    /// @param content the hash of the struct
    function hash(address verifyingContract, bytes32 content) internal view returns (bytes32) {
        bytes32 domain = keccak256(abi.encode(DOMAIN, NAME, VERSION, block.chainid, verifyingContract));
        return keccak256(abi.encodePacked(hex"1901", domain, content));
    }

    /// @param members the contract at which the account enrols
    function enrolment(address members, uint256 jobId, uint16 slot, uint128 bond, address account)
        internal
        view
        returns (bytes32)
    {
        return hash(members, keccak256(abi.encode(ENROLMENT, jobId, slot, bond, account)));
    }
}

/// @title Which domain the typed data is of that this contract checks (EIP-5267).
/// @dev Without the standard's event, which is for domains that change.
abstract contract TypedDomain {
    /// @notice Which fields the domain has, as bits, and what they are.
    function eip712Domain()
        external
        view
        returns (bytes1, string memory, string memory, uint256, address, bytes32, uint256[] memory)
    {
        return (hex"0f", "Atoll", "1", block.chainid, address(this), 0, new uint256[](0));
    }
}
