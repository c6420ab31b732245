/**
 * Where the gateways of a group write the logs of their calls: each to files of its own, because a file is rotated by the one
 * who writes it. Main thread.
 */
import type { Settings } from '../config/schema.js';

/** The first writes `path`, the others `path.p1`, `path.p2` and so on. */
export function withOwnLogs(settings: Settings, slot: number): Settings {
  const { usage_log: usageLog, access_log: accessLog } = settings;
  const own = (path: string): string => (slot === 0 ? path : `${path}.p${slot}`);
  return {
    ...settings,
    ...(usageLog === undefined ? {} : { usage_log: { ...usageLog, path: own(usageLog.path) } }),
    access_log: accessLog.path === undefined ? accessLog : { ...accessLog, path: own(accessLog.path) },
  };
}
