/** A folder with a configuration in it, and what loading it says. */
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { Test } from 'tap';
import { loadSettings, type LoadedSettings, type LoadOptions } from '#src/config/load.js';
import { ConfigError } from '#src/config/config-error.js';

export interface World {
  readonly folder: string;
  load(options?: LoadOptions, environment?: Record<string, string>): LoadedSettings;
  /** The lines of the refusal; fails where there is none. */
  faults(options?: LoadOptions, environment?: Record<string, string>): readonly string[];
}

/** A working directory that holds `files`, gone when the test ends. */
export function worldOf(t: Test, files: Readonly<Record<string, string | Uint8Array>>): World {
  const folder = mkdtempSync(join(tmpdir(), 'tollgate-config-'));
  t.teardown(() => rmSync(folder, { recursive: true }));
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content);
  const load = (options: LoadOptions = {}, environment: Record<string, string> = {}): LoadedSettings =>
    loadSettings(options, { environment, workingDirectory: folder });
  return {
    folder,
    load,
    faults: (options, environment) => {
      try {
        load(options, environment);
      } catch (error) {
        if (error instanceof ConfigError) return error.problems;
        throw error;
      }
      throw new Error('was not refused');
    },
  };
}

/** A sound file of six lines; `extra` follows as line 7. */
export const SOUND_YAML = `models:
  - id: m1
    price: { input: "1", output: "2" }
    upstreams: [{ url: "echo:" }]
plans:
  - { id: p1, requests_per_minute: 60, calls_per_day: 1000 }
`;
