// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {ERC20} from "@openzeppelin/contracts/token/ERC20/ERC20.sol";
import {IERC20Permit} from "@openzeppelin/contracts/token/ERC20/extensions/IERC20Permit.sol";
import {Nonces} from "@openzeppelin/contracts/utils/Nonces.sol";
import {ECDSA} from "@openzeppelin/contracts/utils/cryptography/ECDSA.sol";

/// @title The development network's token: a plain ERC-20 with EIP-2612 permit and a fixed supply.
/// @dev OpenZeppelin's ERC20Permit needs opcodes that Shanghai lacks (MCOPY, through Strings), hence the small permit here.
contract AtollToken is ERC20, Nonces, IERC20Permit {
    bytes32 private constant PERMIT_TYPEHASH =
        keccak256("Permit(address owner,address spender,uint256 value,uint256 nonce,uint256 deadline)");
    bytes32 private constant DOMAIN_TYPEHASH =
        keccak256("EIP712Domain(string name,string version,uint256 chainId,address verifyingContract)");

    uint8 private immutable _decimals;

    error PermitExpired(uint256 deadline, uint256 now_);
    error WrongSigner(address signer, address owner);

    /// @param holder receives the whole supply
    /// @param supply in units
    constructor(address holder, uint256 supply, uint8 decimals_) ERC20("Atoll", "ATOLL") {
        _decimals = decimals_;
        _mint(holder, supply);
    }

    /// @dev Six as USDC has, or 18 as coins have: what a network's amounts are counted in.
    function decimals() public view override returns (uint8) {
        return _decimals;
    }

    /// @inheritdoc IERC20Permit
    function permit(address owner, address spender, uint256 value, uint256 deadline, uint8 v, bytes32 r, bytes32 s)
        external
    {
        if (block.timestamp > deadline) revert PermitExpired(deadline, block.timestamp);
        bytes32 content = keccak256(abi.encode(PERMIT_TYPEHASH, owner, spender, value, _useNonce(owner), deadline));
        bytes32 digest = keccak256(abi.encodePacked(hex"1901", DOMAIN_SEPARATOR(), content));
        address signer = ECDSA.recover(digest, v, r, s);
        if (signer != owner) revert WrongSigner(signer, owner);
        _approve(owner, spender, value);
    }

    /// @inheritdoc IERC20Permit
    function nonces(address owner) public view override(Nonces, IERC20Permit) returns (uint256) {
        return super.nonces(owner);
    }

    /// @inheritdoc IERC20Permit
    // solhint-disable-next-line func-name-mixedcase
    function DOMAIN_SEPARATOR() public view returns (bytes32) {
        return
            keccak256(
                abi.encode(DOMAIN_TYPEHASH, keccak256(bytes(name())), keccak256("1"), block.chainid, address(this))
            );
    }
}
