// Prints CARs that @ipld/car writes, and what it reads in them, as JSON. `npm install && npm run vectors`.
import { createHash } from 'node:crypto'
import { CarReader, CarWriter } from '@ipld/car'
import * as dagCbor from '@ipld/dag-cbor'
import * as dagPb from '@ipld/dag-pb'
import { CID } from 'multiformats/cid'
import * as raw from 'multiformats/codecs/raw'
import { sha256 } from 'multiformats/hashes/sha2'

const content = size => size === 0 ? new Uint8Array() : createHash('shake128', { outputLength: size }).update('atoll').digest()
const block = async (codec, value, version = 1) => {
  const bytes = codec.encode(value)
  return { cid: CID.create(version, codec.code, await sha256.digest(bytes)), bytes }
}

// With a CID of 36 bytes before them, these lengths stand on both sides of a longer varint.
const leaves = await Promise.all([0, 1, 91, 92, 16_347, 16_348].map(size => block(raw, content(size))))
const links = leaves.map(({ cid, bytes }, at) => ({ Hash: cid, Name: `${at}`, Tsize: bytes.length }))
const folder = { Data: new Uint8Array([8, 1]), Links: links }
const v1 = await block(dagPb, folder)
const v0 = await block(dagPb, folder, 0)
const document = await block(dagCbor, { of: v1.cid, all: leaves.map(({ cid }) => cid), size: 1.5, more: null })
const cases = [
  ['no blocks', [leaves[0]], []],
  ['no roots', [], [leaves[1]]],
  ['every size', [leaves[0]], leaves],
  ['a folder', [v1], [v1, ...leaves.slice(0, 4)]],
  ['a folder with a CIDv0', [v0], [v0, leaves[2]]],
  ['a document', [document], [document, v1, leaves[1]]],
  ['a block twice', [v1], [v1, leaves[1], leaves[1]]],
  ['23 roots', Array(23).fill(v1), [v1]]
]

const cars = []
for (const [name, roots, blocks] of cases) {
  const { writer, out } = CarWriter.create(roots.map(({ cid }) => cid))
  const pieces = (async () => { const all = []; for await (const piece of out) all.push(piece); return Buffer.concat(all) })()
  for (const put of blocks) await writer.put(put)
  await writer.close()
  const car = await pieces
  const reader = await CarReader.fromBytes(car)
  const read = []
  for await (const { cid, bytes } of reader.blocks()) read.push({ cid: cid.toString(), bytes: bytes.length })
  cars.push({ name, roots: (await reader.getRoots()).map(String), blocks: read, car: car.toString('base64') })
}
console.log(JSON.stringify({ '@ipld/car': '5.4.7', cars }, null, 1))
