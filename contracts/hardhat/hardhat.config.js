// For Hardhat's node alone, a fourth chain beside Anvil and Ganache: forge compiles, and nothing here does.
module.exports = { solidity: '0.8.37', networks: { hardhat: { chainId: 31337 } } };
