/**
 * Checks whether Tollgate can serve on this Node and this system, and says what to do if not. main.ts calls
 * `unsupportedNode` first of all. mock-upstream-command.ts and serve-command.ts call `unloadableServer`.
 * store/environment.ts names what lmdb needs.
 *
 * To support another Node, change NODE_MIN, NODE_OF_ABI, the messages below, which name releases, systems
 * and the glibc of Node 20 in words, `engines` in package.json, the README and the test.
 *
 * Must hold: at the top this file imports only modules of Node, so that its message is printed before a
 * dependency fails with a stack trace (test/unit/cli/runtime-support.test.ts).
 */
import { existsSync, readFileSync, readdirSync } from 'node:fs';
import { createRequire } from 'node:module';
import { dirname, join } from 'node:path';

/** The oldest release with the syntax and the modules that the program and its packages use. */
const NODE_MIN = [20, 18] as const;

/** Node's releases by the number of their native interface, `process.versions.modules`. */
const NODE_OF_ABI: Readonly<Record<string, number>> = { 115: 20, 127: 22, 137: 24 };

/**
 * The environment variable that tells a process only to read the settings and to send them. Declared in the
 * only file that main.ts may import before it reads the variable. The name stays: older supervisors set it.
 */
export const SETTINGS_PROCESS_VARIABLE = 'TOLLGATE_SETTINGS_PROCESS';

/** Whether `readSettings` of serve.ts has forked this process. A shell too may set the variable. */
export function isSettingsProcess(): boolean {
  return process.send !== undefined && process.env[SETTINGS_PROCESS_VARIABLE] !== undefined;
}

/** What `unsupportedRuntime` decides by. Texts are as Node gives them. */
export interface RuntimeFacts {
  /** `process.versions.node`. */
  readonly node: string;
  /** `process.versions.modules`. */
  readonly abi: string;
  readonly platform: string;
  readonly arch: string;
  /** Version of the C library; undefined if it is not glibc. */
  readonly glibc: string | undefined;
  /** Names of the native binaries in the package of µWebSockets.js; undefined if it is not installed. */
  readonly binaries: readonly string[] | undefined;
  /** The newest glibc that the binary for this Node names; undefined without a binary or such a name. */
  readonly glibcWanted: string | undefined;
}

/** Returns why no command runs on this Node; undefined if commands run. */
export function unsupportedNode(node: string): string | undefined {
  if (!isOlder(node, NODE_MIN.join('.'))) return undefined;
  return `Tollgate needs Node 20.18 or newer and this is Node ${node}. Install Node 24 (or 22) and run the command again.`;
}

/**
 * Returns why `serve` and `mock-upstream` cannot run here; undefined if µWebSockets.js loads. The facts are
 * collected only if it does not, because that takes three times as long as the load. Throws the package's own
 * error if the facts do not explain it, such as for a binary that is damaged.
 */
export function unloadableServer(): string | undefined {
  try {
    createRequire(import.meta.url)('uWebSockets.js');
    return undefined;
  } catch (error) {
    const problem = unsupportedRuntime(runtimeFacts());
    if (problem === undefined) throw error;
    return problem;
  }
}

/** Returns why µWebSockets.js cannot be loaded with these facts; undefined if they explain nothing. Pure. */
export function unsupportedRuntime(facts: RuntimeFacts): string | undefined {
  const { node, abi, platform, arch, glibc, binaries, glibcWanted } = facts;
  if (binaries === undefined) {
    const system = `${platform} ${arch}${glibc === undefined ? '' : `, glibc ${glibc}`}`;
    return `Tollgate cannot serve: the package uWebSockets.js, which it serves with, is not installed for this Node ${node} (${system}). Run "npm ci --omit=dev" in the folder of Tollgate's package.json with Node 24, 22 or 20, or use the container image.`;
  }
  const prefix = `uws_${platform}_${arch}_`;
  const abis = binaries
    .filter((name) => name.startsWith(prefix))
    .map((name) => /_(\d+)\.node$/.exec(name)?.[1] ?? '');
  const theBinaries = 'the binaries of µWebSockets.js, which Tollgate serves with,';
  if (abis.length === 0) {
    return `Tollgate cannot serve on ${platform} ${arch}: ${theBinaries} are for other systems. Use Linux (glibc) on x64 or arm64, or the container image.`;
  }
  if (!abis.includes(abi)) {
    const nodes = abis.map((binaryAbi) => NODE_OF_ABI[binaryAbi]).filter((release) => release !== undefined);
    return `Tollgate cannot serve on Node ${node}: ${theBinaries} are for Node ${nodes.sort().join(', ')}. Start it with Node 24 or 22, or use the container image.`;
  }
  // Only Linux has several C libraries.
  if (platform !== 'linux') return undefined;
  if (glibc === undefined) {
    return `Tollgate cannot serve on this Linux: ${theBinaries} need glibc, and this system's C library is another (musl on Alpine). Use Debian, Ubuntu, Fedora or the container image.`;
  }
  if (glibcWanted !== undefined && isOlder(glibc, glibcWanted)) {
    return `Tollgate cannot serve on Node ${node} here: ${theBinaries} need glibc ${glibcWanted} with this Node, and this system has ${glibc}. Use a newer system (Debian 13, Ubuntu 24.04), the container image, or Node 20, whose binary runs on glibc 2.27.`;
  }
  return undefined;
}

/**
 * Returns the facts of this process. Takes some 20 ms, because it searches the binary for versions. Throws if
 * the package is there and its files cannot be read.
 */
export function runtimeFacts(): RuntimeFacts {
  const { node, modules: abi } = process.versions;
  const { platform, arch } = process;
  const folder = packageFolder();
  const binary = folder === undefined ? undefined : join(folder, `uws_${platform}_${arch}_${abi}.node`);
  return {
    node,
    abi,
    platform,
    arch,
    glibc: glibcVersion(),
    binaries: folder === undefined ? undefined : readdirSync(folder).filter((name) => name.endsWith('.node')),
    glibcWanted: binary !== undefined && existsSync(binary) ? glibcNamedIn(binary) : undefined,
  };
}

/** Returns the folder of µWebSockets.js; undefined if the package is not installed. */
function packageFolder(): string | undefined {
  try {
    return dirname(createRequire(import.meta.url).resolve('uWebSockets.js'));
  } catch {
    return undefined;
  }
}

function glibcVersion(): string | undefined {
  // Otherwise the report looks up host names, which takes seconds. Node's types lack `excludeNetwork`.
  Object.assign(process.report, { excludeNetwork: true });
  const { header } = process.report.getReport() as { header?: { glibcVersionRuntime?: string } };
  return header?.glibcVersionRuntime;
}

const GLIBC_PREFIX = 'GLIBC_2.';
/** Digits that are read after the prefix; glibc's numbers have two. */
const GLIBC_DIGITS_MAX = 4;

/** Returns the newest version: an ELF binary names each version of glibc that it needs in plain text. */
function glibcNamedIn(path: string): string | undefined {
  const binary = readFileSync(path);
  let newest: string | undefined;
  let start = binary.indexOf(GLIBC_PREFIX);
  while (start !== -1) {
    const numberStart = start + GLIBC_PREFIX.length;
    const text = binary.toString('latin1', start, numberStart + GLIBC_DIGITS_MAX);
    const version = /^GLIBC_(2\.\d+)/.exec(text)?.[1];
    if (version !== undefined && (newest === undefined || isOlder(newest, version))) newest = version;
    start = binary.indexOf(GLIBC_PREFIX, numberStart);
  }
  return newest;
}

/** Returns whether `version` comes before `otherVersion`, by their first two numbers. */
function isOlder(version: string, otherVersion: string): boolean {
  const [major = 0, minor = 0] = version.split('.').map(Number);
  const [otherMajor = 0, otherMinor = 0] = otherVersion.split('.').map(Number);
  return major < otherMajor || (major === otherMajor && minor < otherMinor);
}
