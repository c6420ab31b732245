/**
 * The proof of valkey-marks.ts, walked through: a model of its rules in every order of exchanges, lost
 * replies, copies to a replica or to disk, promotions and restarts, up to a depth. One permit may be held by
 * one node at a time. Without any of the rules the walk finds two that hold it, so it would see a fault.
 */
import t from 'tap';

type Mark = readonly [number: number, server: number];
type Name = 'x' | 'y' | 'z';

interface Place {
  mark: Mark;
  /** Version of the list as of the mark. */
  seen: number;
  /** Version with which it joined; 0 if that is witnessed. */
  joined: number;
}

/** What is replicated and persisted. */
interface Data {
  run: number;
  term: number;
  checking: boolean;
  lost: boolean;
  places: Partial<Record<Name, Place>>;
  awaited: Name[];
  version: number;
  witnessed: number;
  holder: Name | '';
}

interface Node {
  sequence: number;
  heard: Mark;
  promised: Mark;
  holds: boolean;
}

interface World {
  /** The master and the replica; 0 while it is none. */
  ids: [number, number];
  data: [Data, Data];
  disk: Data;
  nodes: Record<Name, Node>;
  lastId: number;
}

interface Rules {
  readonly marks: boolean;
  readonly promises: boolean;
  readonly witnesses: boolean;
}
const ALL: Rules = { marks: true, promises: true, witnesses: true };
const isSame = (one: Mark, other: Mark): boolean => one[0] === other[0] && one[1] === other[1];

function beginTerm(data: Data, above: number): void {
  data.term = Math.max(data.term, above) + 1;
  data.checking = true;
  data.awaited = Object.keys(data.places) as Name[];
}

/** Carries out an exchange; returns what the reply does to the node. */
function carryOut(data: Data, id: number, name: Name, node: Node, rules: Rules): (heard: Node) => void {
  const nothing = (): void => undefined;
  if (data.run !== id) {
    data.run = id;
    beginTerm(data, 0);
  }
  if (rules.promises && !isSame(node.promised, [data.term, data.run])) {
    if (node.promised[0] >= data.term) beginTerm(data, node.promised[0]);
    const promised: Mark = [data.term, data.run];
    return (heard) => void (heard.promised = promised);
  }
  const place = data.places[name];
  if (place === undefined) {
    if (rules.marks && node.heard[0] > 0) data.lost = true;
    data.version += 1;
    data.places[name] = { mark: node.heard, seen: 0, joined: rules.witnesses ? data.version : 0 };
    return nothing;
  }
  const { mark } = place;
  const has = mark[0] > node.heard[0] || isSame(mark, node.heard);
  if (rules.marks && !has) data.lost = true;
  if (data.lost) return nothing;
  if (place.joined === 0 && mark[0] === node.heard[0]) data.witnessed = Math.max(data.witnessed, place.seen);
  if (data.checking) {
    data.awaited = data.awaited.filter((other) => other !== name);
    if (data.awaited.length > 0) return nothing;
    data.checking = false;
  }
  if (place.joined > data.witnessed) return nothing;
  const number = node.sequence;
  data.places[name] = { mark: [number, id], seen: data.version, joined: 0 };
  if (data.holder === name && !node.holds) data.holder = '';
  if (node.holds) data.holder = name;
  const granted = data.holder === '';
  if (granted) data.holder = name;
  return (heard) => {
    heard.heard = [number, id];
    heard.holds ||= granted;
  };
}

const copyOf = <Value>(value: Value): Value => JSON.parse(JSON.stringify(value)) as Value;

function* steps(world: World, rules: Rules): Generator<World> {
  for (const name of ['x', 'y', 'z'] as const)
    for (const server of [0, 1] as const) {
      if (world.ids[server] === 0) continue;
      for (const isHeard of [true, false]) {
        const next = copyOf(world);
        const node = next.nodes[name];
        node.sequence += 1;
        const send = () => carryOut(next.data[server], next.ids[server], name, node, rules);
        const reply = send();
        if (isHeard) reply(node);
        // It sends the same again, with the promise.
        if (isHeard && !isSame(node.promised, world.nodes[name].promised)) send()(node);
        yield next;
      }
    }
  const replicated = copyOf(world);
  if (world.ids[1] === 0) {
    replicated.data[1] = copyOf(world.data[0]);
    yield replicated;
    const promoted = copyOf(world);
    promoted.lastId += 1;
    promoted.ids[1] = promoted.lastId;
    yield promoted;
  }
  const persisted = copyOf(world);
  persisted.disk = copyOf(world.data[0]);
  yield persisted;
  const restarted = copyOf(world);
  restarted.lastId += 1;
  restarted.ids[0] = restarted.lastId;
  restarted.data[0] = copyOf(world.disk);
  yield restarted;
}

/** Returns whether two nodes ever hold the permit, and how many worlds were seen. */
function walk(depth: number, rules: Rules): { readonly isDoubled: boolean; readonly worlds: number } {
  const place = (): Place => ({ mark: [0, 0], seen: 1, joined: 0 });
  const data: Data = {
    run: 1,
    term: 1,
    checking: false,
    lost: false,
    places: { x: place(), y: place() },
    awaited: [],
    version: 1,
    witnessed: 1,
    holder: '',
  };
  const node = (): Node => ({ sequence: 0, heard: [0, 0], promised: [1, 1], holds: false });
  const begin: World = {
    ids: [1, 0],
    data: [copyOf(data), copyOf(data)],
    disk: copyOf(data),
    nodes: { x: node(), y: node(), z: node() },
    lastId: 1,
  };
  const seen = new Set([JSON.stringify(begin)]);
  let level = [begin];
  for (let made = 0; made < depth; made++) {
    const after: World[] = [];
    for (const world of level)
      for (const next of steps(world, rules)) {
        const key = JSON.stringify(next);
        if (seen.has(key)) continue;
        seen.add(key);
        if (Object.values(next.nodes).filter(({ holds }) => holds).length > 1)
          return { isDoubled: true, worlds: seen.size };
        after.push(next);
      }
    level = after;
  }
  return { isDoubled: false, worlds: seen.size };
}

const DEPTH = 6;

void t.test('with all rules one node holds the permit', (t) => {
  const { isDoubled, worlds } = walk(DEPTH, ALL);
  t.comment(`${worlds} worlds`);
  t.notOk(isDoubled);
  t.ok(worlds > 10_000);
  t.end();
});

for (const rule of ['marks', 'promises', 'witnesses'] as const)
  void t.test(`without ${rule} two hold it`, (t) => {
    t.ok(walk(DEPTH, { ...ALL, [rule]: false }).isDoubled);
    t.end();
  });
