/**
 * Names of what lies at the server that hosts share. Main thread.
 *
 * What one script works on has one hash tag, so that it lies on one server of a Cluster: `{namespace:partition}`.
 *
 *     {ns:0}:registry        hash    epoch, version and history of the registry
 *     {ns:0}:registry:log:E  stream  of epoch E: version-0 → rows that the transaction wrote
 *     {ns:0}:registry:rows:E hash    of epoch E: row → value, as of the version
 *     {ns:0}:registry:claims hash    host → how new its copy is, while the server has none
 *     {ns:0}:registry:seeder text    the host that puts its copy there
 */

/** FNV-1a, 32 bits: accounts spread evenly, the same on all hosts. */
export function partitionOf(subject: string, partitions: number): number {
  let hash = 0x811c9dc5;
  for (let at = 0; at < subject.length; at++) {
    hash = Math.imul(hash ^ subject.charCodeAt(at), 0x01000193);
  }
  return (hash >>> 0) % partitions;
}

export function tagOf(namespace: string, partition: number): string {
  return `{${namespace}:${partition}}`;
}

export interface RegistryKeys {
  readonly state: string;
  readonly claims: string;
  readonly seeder: string;
  readonly logOf: (epoch: string) => string;
  readonly rowsOf: (epoch: string) => string;
}

export function registryKeys(namespace: string): RegistryKeys {
  const first = `${tagOf(namespace, 0)}:registry`;
  return {
    state: first,
    claims: `${first}:claims`,
    seeder: `${first}:seeder`,
    logOf: (epoch) => `${first}:log:${epoch}`,
    rowsOf: (epoch) => `${first}:rows:${epoch}`,
  };
}

export interface AuthorityKeys {
  readonly meta: string;
  readonly nodes: string;
  readonly awaited: string;
  readonly heldBy: (place: string) => string;
  /** The two of a subject. */
  readonly of: (subject: string) => readonly [string, string];
}

/** What the authority keeps of a partition; valkey-lua.ts tells what lies there. */
export function authorityKeys(namespace: string, partition: number): AuthorityKeys {
  const tag = tagOf(namespace, partition);
  return {
    meta: `${tag}:meta`,
    nodes: `${tag}:nodes`,
    awaited: `${tag}:awaited`,
    heldBy: (place) => `${tag}:held:${place}`,
    of: (subject) => [`${tag}:s:${subject}`, `${tag}:m:${subject}`],
  };
}
