/**
 * How LMDB opens the store. Main thread of the gateway, or a command.
 */
/** Of every opening of the file, but for `readOnly`. */
export const OPTIONS = {
  noSubdir: true,
  // More than there are tables; the others are room for a later format to open.
  maxDbs: 32,
  // Address space and not memory. A million accounts with two million keys take about 2 GB of it.
  mapSize: 16 * 1024 ** 3,
  pageSize: 4096,
  // Processes and threads that read at once.
  maxReaders: 126,
  permissionsMode: 0o600,
  // A commit returns when it is on disk; overlapping would return before.
  overlappingSync: false,
  separateFlushed: false,
  noSync: false,
  noMetaSync: false,
  // Unwritten memory of the process must not get into the file.
  noMemInit: false,
  useWritemap: false,
  remapChunks: false,
  readOnly: false,
  eventTurnBatching: true,
  compression: false,
  cache: false,
  encoding: 'msgpack' as const,
  keyEncoding: 'ordered-binary' as const,
};
