// SPDX-License-Identifier: Apache-2.0
pragma solidity 0.8.37;

import "../types/Types.sol";

/// @title Who holds seats and slots, with which bond, and what a missed duty or a slash costs.
interface IMembers {
    /// @notice An account takes a seat.
    /// @param id of the holder
    /// @param from the first round that it counts in
    /// @custom:state bit in `held`
    event Seated(uint256 indexed jobId, address indexed account, uint16 indexed seat, uint32 id, uint32 from);
    /// @notice A part of a seat's pay joins its bond.
    /// @param amount wei
    event Retained(uint256 indexed jobId, address indexed account, uint32 indexed id, uint256 amount);
    /// @notice A seat's holder has so much to lose that it is drawn more rarely.
    /// @param from the first round that it is in
    /// @param steps entries of the table of rates, in all
    event Seasoned(uint256 indexed jobId, address indexed account, uint32 indexed id, uint32 from, uint8 steps);
    /// @notice A seat will be free.
    /// @param to the first round that the holder does not count in
    /// @custom:state bit out of `held`; again, with an earlier `to`, of who is slashed before its
    /// commit
    event SeatLeaving(uint256 indexed jobId, address indexed account, uint16 indexed seat, uint32 id, uint32 to);
    /// @notice An account takes a slot of the verifiers' pool.
    /// @param id of the holder
    /// @param from the first round that it may count in
    /// @param bond wei
    /// @param readyUntil unix seconds by which it has to be ready
    event Enrolled(
        uint256 indexed jobId,
        address indexed account,
        uint16 indexed slot,
        uint32 id,
        uint32 from,
        uint128 bond,
        uint64 readyUntil
    );
    /// @notice A verifier holds manifest, data and model.
    /// @custom:state in WAITING, where the slot's newest `Enrolled` has a `from` up to `round`: bit
    /// in `ready`. Else in the next pool
    event Ready(uint256 indexed jobId, address indexed account, uint16 indexed slot, uint32 id);
    /// @notice A slot will be free.
    /// @param to the first round that the holder does not count in
    /// @custom:state in WAITING, of such a slot: bit out of `ready`. Else out of the next pool,
    /// unless a `Ready` of the slot comes later
    event SlotLeaving(uint256 indexed jobId, address indexed account, uint16 indexed slot, uint32 id, uint32 to);
    /// @notice A holder did not do what it owed, and part of its bond is gone; of missed duties an
    /// eighth at most.
    /// @param penalty wei of the bond
    /// @custom:state of a seat, kind 0: bit out of `owing`
    event Missed(
        uint256 indexed jobId,
        address indexed account,
        Role role,
        uint32 indexed id,
        uint32 round,
        MissedDuty kind,
        uint256 penalty
    );
    /// @notice A holder lost its bond to a game.
    /// @param winner whom a share of the bond goes to
    /// @param lostFrom the first round whose pay is lost
    /// @param slashed wei
    event HolderSlashed(
        uint256 indexed jobId,
        address indexed account,
        address indexed winner,
        Role role,
        uint32 id,
        uint32 lostFrom,
        uint256 slashed
    );
    /// @notice A holder that owes nothing has what is left of its bond again.
    event Released(uint256 indexed jobId, address indexed account, Role role, uint32 indexed id);
    /// @notice Where an account serves its blocks; the last one said counts.
    event GatewayAnnounced(address indexed account, string url);

    /// @notice Takes a free seat from the next round start on; locks Terms.providerBond.
    /// @custom:caller a provider
    function join(uint256 jobId, uint16 seat) external returns (uint32 id);
    /// @notice The caller's seat is free after the round that runs, which it still owes.
    /// @custom:caller the seat's holder
    function leaveSeat(uint256 jobId) external;
    /// @notice "I computed another model": leaves without a missed duty, before the round's commit.
    /// @custom:caller the seat's holder
    function disagree(uint256 jobId, bytes32 seed, bytes32 root) external;
    /// @notice Takes the penalty of a seat's last missed duty, which can be taken then. Anyone.
    /// @custom:caller anyone, once
    function penaliseSeat(uint256 jobId, uint16 seat) external;
    /// @notice Takes a slot of the pool: a free one, one whose member is not ready in time, or for
    /// a tenth more the cheapest of a full pool; that once a round, and not within a window of the
    /// last time.
    /// @param signature shows that the caller can sign certificates: its own of the typed data
    /// `Enrolment` (SPEC-ROUNDS.md, 2), a contract's by ERC-1271; empty where a registered key signs them
    /// @custom:caller a verifier
    function enrol(uint256 jobId, uint16 slot, uint128 bond, bytes calldata signature) external returns (uint32 id);
    /// @notice "I hold manifest, data and model." Counts from the next settlement on; where the
    /// caller is a member of the running round, from its end on, and while none runs at once.
    /// @custom:caller the slot's holder
    function ready(uint256 jobId) external;
    /// @notice The caller's slot is free after the round that runs. Not in MERGE, unless a committee
    /// draw of the round has settled nothing.
    /// @custom:caller the slot's holder
    function leavePool(uint256 jobId) external;
    /// @notice Penalises a member that gave no vote by the end of a committee draw's votes. Anyone.
    /// @custom:caller anyone, once
    function penaliseMember(uint256 jobId, uint32 round, uint32 id) external;
    /// @notice Unlocks the bond of who owes nothing any more. Anyone.
    /// @custom:caller anyone, once
    function release(uint256 jobId, Role role, uint32 id) external;
    /// @notice Says where the caller serves its blocks; the last one said counts. Visible ASCII
    /// (RFC 3986).
    /// @custom:caller the account
    function announceGateway(string calldata url) external;

    /// @return role of the account's seat or slot in the job
    /// @return id of its holder; 0 for none
    /// @custom:caller anyone
    function idOf(uint256 jobId, address account) external view returns (Role role, uint32 id);
    /// @notice What an account signs to take a slot with such a bond.
    function enrolmentHash(uint256 jobId, uint16 slot, uint128 bond, address account) external view returns (bytes32);
    function bondOf(uint256 jobId, Role role, uint32 id) external view returns (uint256);
}
