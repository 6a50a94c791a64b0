// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import {IBeacon} from "./interfaces/IBeacon.sol";
import {IDrandBeacon} from "./interfaces/IDrandBeacon.sol";
import {Drand} from "./libraries/Drand.sol";
import {History} from "./libraries/History.sol";

/// @title Draws by the signature of a drand round that is after the block, together with the block's hash.
/// @dev Whoever makes the block does not know the signature; where the chain runs late, so that the round is over before
/// its block is made, nobody but who makes it knows the hash. Who withholds a signature gains nothing: anybody has it
/// from drand, and may post it.
contract DrandBeacon is IBeacon, IDrandBeacon {
    /// @inheritdoc IDrandBeacon
    uint256 public immutable genesis;
    /// @inheritdoc IDrandBeacon
    uint256 public immutable period;
    /// @inheritdoc IDrandBeacon
    uint256 public immutable margin;
    bytes32 private immutable _key0;
    bytes32 private immutable _key1;
    bytes32 private immutable _key2;
    bytes32 private immutable _key3;
    bytes32 private immutable _key4;
    bytes32 private immutable _key5;

    /// @inheritdoc IDrandBeacon
    mapping(uint256 number => uint64) public override roundOf;
    /// @inheritdoc IDrandBeacon
    mapping(uint64 round => bytes32) public override randomness;

    error NoBeacon(uint256 period, bytes key);
    error GenesisToCome(uint256 genesis, uint256 now_);
    error AlreadyPosted(uint64 round);
    error WrongSignature(uint64 round);

    /// @param genesis_ unix seconds of round 1, which is over: no block before it has a round
    /// @param period_ seconds from a round to the next
    /// @param margin_ seconds that a block may be made after its time
    /// @param key_ of a point of G2 that is not its zero: x.c0 ‖ x.c1 ‖ y.c0 ‖ y.c1, 48 bytes each, big-endian
    constructor(uint256 genesis_, uint256 period_, uint256 margin_, bytes memory key_) {
        bool isKey = key_.length == Drand.KEY_BYTES && keccak256(key_) != keccak256(new bytes(Drand.KEY_BYTES));
        if (period_ == 0 || !isKey) revert NoBeacon(period_, key_);
        if (genesis_ > block.timestamp) revert GenesisToCome(genesis_, block.timestamp);
        (genesis, period, margin) = (genesis_, period_, margin_);
        (_key0, _key1, _key2, _key3, _key4, _key5) =
            abi.decode(key_, (bytes32, bytes32, bytes32, bytes32, bytes32, bytes32));
    }

    /// @inheritdoc IDrandBeacon
    function post(uint64 round, bytes calldata signature) external {
        if (randomness[round] != 0) revert AlreadyPosted(round);
        bool isWhole = signature.length == Drand.SIGNATURE_BYTES;
        if (!isWhole || !Drand.isSigned(_words(), round, signature)) revert WrongSignature(round);
        randomness[round] = Drand.randomnessOf(signature);
    }

    /// @inheritdoc IBeacon
    /// @dev Open to anybody, since it says the same of a block whoever calls it. Nobody has to post a round for that alone:
    /// which block a job's draw is by, `Rounds` says (`awaitedBlock`).
    function note() external {
        roundOf[block.number] = roundAfter(block.timestamp);
    }

    /// @inheritdoc IBeacon
    function seedOf(uint256 number) external view returns (bytes32 seed, bool isLost) {
        bytes32 blockHash = History.hashOf(number);
        if (blockHash == 0) return (0, number < block.number);
        bytes32 posted = randomness[roundOf[number]];
        if (posted != 0) seed = keccak256(abi.encode(posted, blockHash));
    }

    /// @inheritdoc IDrandBeacon
    function awaited(uint256 number) external view returns (uint64) {
        bool isLost = number < block.number && History.hashOf(number) == 0;
        uint64 round = roundOf[number];
        return isLost || randomness[round] != 0 ? 0 : round;
    }

    /// @inheritdoc IDrandBeacon
    function roundAfter(uint256 time) public view returns (uint64) {
        return uint64((time + margin - genesis) / period + 2); // round 1 is at genesis
    }

    /// @inheritdoc IDrandBeacon
    function key() external view returns (bytes memory) {
        return abi.encodePacked(_words());
    }

    function _words() private view returns (bytes32[6] memory) {
        return [_key0, _key1, _key2, _key3, _key4, _key5];
    }
}
