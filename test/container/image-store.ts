/**
 * The image as its test builds it: by buildah without an engine or a daemon, over a base image made on the
 * spot, in an image store of its own under build/. As root.
 */
import { execFile } from 'node:child_process';
import { join, resolve } from 'node:path';
import { promisify } from 'node:util';
import type { Scope } from '../support/mock.js';

const run = promisify(execFile);

/** Git-ignored; base image and layers stay for the next time. */
const FOLDER = resolve('build/container');
const IMAGE = 'localhost/tollgate:test';
/**
 * Building installs all packages twice: half a minute where nothing else runs, more than five where three
 * other runs of tests share two slow cores. This is for one that hangs.
 */
const BUILD_TIMEOUT_MS = 900_000;
const OUTPUT_BYTES_MAX = 16 * 1024 * 1024;

/** Of `image inspect`, what a container's start needs and what is asserted. */
export interface ImageConfig {
  readonly User: string;
  readonly ExposedPorts: Readonly<Record<string, object>>;
  readonly Env: readonly string[];
  readonly Entrypoint: readonly string[];
  readonly Cmd: readonly string[];
  readonly Volumes: Readonly<Record<string, object>>;
  readonly WorkingDir: string;
  readonly Labels: Readonly<Record<string, string>>;
  readonly Healthcheck: { readonly Test: readonly string[] };
}

export interface BuiltImage {
  readonly config: ImageConfig;
  /** Where its files are to be seen; the test's own layer over them can be written. */
  readonly root: string;
  readonly log: string;
}

async function command(
  program: string,
  args: readonly string[],
  timeoutMs = BUILD_TIMEOUT_MS,
): Promise<string> {
  const env = {
    ...process.env,
    CONTAINERS_STORAGE_CONF: join(FOLDER, 'storage.conf'),
    BUILDAH_ISOLATION: 'chroot',
  };
  const { stdout, stderr } = await run(program, args, {
    env,
    timeout: timeoutMs,
    maxBuffer: OUTPUT_BYTES_MAX,
  });
  return program === 'buildah' && args[0] === 'bud' ? stdout + stderr : stdout.trim();
}

/** Builds the Dockerfile of the working directory, unchanged, and mounts the result until the test ends. */
export async function buildImage(t: Scope): Promise<BuiltImage> {
  const base = await command('test/container/base-image.sh', [FOLDER]);
  // `docker`, because the OCI format has no health checks.
  const log = await command('buildah', [
    'bud',
    '--pull-never',
    '--format=docker',
    '--tag',
    IMAGE,
    `--volume=${FOLDER}/npm:/run/npm:ro`,
    `--volume=${FOLDER}/npm/npmrc:/root/.npmrc:ro`,
    '.',
  ]);
  const container = await command('buildah', ['from', '--pull-never', IMAGE]);
  t.teardown(async () => {
    await command('buildah', ['rm', container]);
    // Images of former builds. And the store's folder is a mount of itself, which would be in the way of who
    // removes it. Neither goes while another uses it.
    await command('buildah', ['rmi', '--prune']).catch(() => undefined);
    await command('umount', [join(FOLDER, 'storage/overlay')]).catch(() => undefined);
  });
  const { Docker } = JSON.parse(await command('buildah', ['inspect', '--type', 'image', IMAGE])) as {
    readonly Docker: { readonly config: ImageConfig };
  };
  return {
    config: Docker.config,
    root: await command('buildah', ['mount', container]),
    log: `${base}\n${log}`,
  };
}
