// Prints the CIDs that ipfs-unixfs-importer gives files and folders, as JSON. `npm install && npm run vectors`.
import { createHash } from 'node:crypto'
import { MemoryBlockstore } from 'blockstore-core'
import { importer } from 'ipfs-unixfs-importer'
import { fixedSize } from 'ipfs-unixfs-importer/chunker'
import { balanced } from 'ipfs-unixfs-importer/layout'

const content = size => size === 0 ? new Uint8Array() : createHash('shake128', { outputLength: size }).update('atoll').digest()

const options = ({ version, chunk, links }) => ({
  cidVersion: version,
  rawLeaves: version === 1,
  reduceSingleLeafToSelf: true,
  leafType: 'file',
  chunker: fixedSize({ chunkSize: chunk }),
  layout: balanced({ maxChildrenPerNode: links }),
  wrapWithDirectory: false
})

const around = (...sizes) => sizes.flatMap(size => [size - 1, size, size + 1])
const MIB = 1 << 20
const v1 = { profile: 'v1', version: 1, chunk: MIB, links: 1024 }
const legacy = { profile: 'legacy', version: 0, chunk: MIB / 4, links: 174 }
const cases = [
  [v1, [0, 1, 1000, ...around(MIB, 2 * MIB, 3 * MIB), 50_000_000]],
  [legacy, [0, 1, 1000, ...around(MIB / 4, MIB / 2, MIB, 174 * MIB / 4), 50_000_000]],
  [{ ...v1, chunk: 4 }, around(4, 8, 4 * 1023, 4 * 1024, 4 * 1025, 4 * 1024 * 2)],
  [{ ...legacy, chunk: 4 }, around(4, 8, 4 * 173, 4 * 174, 4 * 175, 4 * 174 * 2)],
  [{ ...v1, chunk: 4, links: 8 }, around(4 * 8, 4 * 64, 4 * 512)],
  [{ ...legacy, chunk: 4, links: 7 }, around(4 * 7, 4 * 49, 4 * 343)]
]

const files = []
for (const [profile, sizes] of cases) {
  for (const size of sizes) {
    for await (const entry of importer([{ path: 'file', content: content(size) }], new MemoryBlockstore(), options(profile))) {
      files.push({ profile: profile.profile, chunk: profile.chunk, links: profile.links, bytes: size, cid: entry.cid.toString(), tree_bytes: Number(entry.size) })
    }
  }
}

const tree = { 'b.txt': 5, 'a/deep/file': 3_000_000, 'a/empty': 0, 'Z': 300_000, 'é/ü': 12, 'a.txt': 1 }
const folders = []
for (const profile of [v1, legacy]) {
  const source = Object.entries(tree).map(([path, size]) => ({ path, content: content(size) }))
  let root
  for await (const entry of importer(source, new MemoryBlockstore(), { ...options(profile), wrapWithDirectory: true })) root = entry
  folders.push({ profile: profile.profile, tree, cid: root.cid.toString() })
}
console.log(JSON.stringify({ importer: '17.1.1', content: "shake128('atoll')", files, folders }, null, 1))
