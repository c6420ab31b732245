/**
 * What an import could not carry over, and a map of the file that knows which of its names were understood. Main thread of
 * a command.
 */
import { formatPath, type SettingPath } from '../config-error.js';
import type { YamlSource } from '../yaml-source.js';

export interface Remark {
  /** From 1, in the file that was read. */
  readonly line: number;
  /** `model_list[0].litellm_params.rpm`. */
  readonly path: string;
  /** Never holds a value that may be secret. */
  readonly text: string;
}

export class Remarks {
  readonly #source: YamlSource;
  /** By their words, for a map may be looked at more than once. */
  readonly #remarks = new Map<string, Remark>();

  constructor(source: YamlSource) {
    this.#source = source;
  }

  add(path: SettingPath, text: string): void {
    const remark = { line: this.#source.lineOf(path), path: formatPath(path), text };
    this.#remarks.set(`${remark.path}: ${text}`, remark);
  }

  /** In the order of their lines. */
  get list(): readonly Remark[] {
    return [...this.#remarks.values()].sort((left, right) => left.line - right.line);
  }

  /** A scalar as the file writes it; undefined where it came from elsewhere (a merged block). */
  writtenAt(path: SettingPath): string | undefined {
    return this.#source.writtenAt(path);
  }
}

/** One map of the file. What is asked for counts as understood; `rest` is what nobody asked for. */
export class ImportMap {
  readonly path: SettingPath;
  readonly remarks: Remarks;
  readonly #values: Readonly<Record<string, unknown>>;
  readonly #asked = new Set<string>();

  /** Anything but a map counts as an empty one, with a remark. */
  constructor(value: unknown, path: SettingPath, remarks: Remarks) {
    this.path = path;
    this.remarks = remarks;
    const isMap = typeof value === 'object' && value !== null && !Array.isArray(value);
    if (!isMap && value !== null && value !== undefined) remarks.add(path, 'is no map of settings');
    this.#values = isMap ? (value as Record<string, unknown>) : {};
  }

  take(name: string): unknown {
    this.#asked.add(name);
    return Object.hasOwn(this.#values, name) ? (this.#values[name] ?? undefined) : undefined;
  }

  map(name: string): ImportMap {
    return new ImportMap(this.take(name), [...this.path, name], this.remarks);
  }

  /** A text that is not empty; a number or a truth value counts as its text. */
  text(name: string): string | undefined {
    const value = this.take(name);
    if (value === undefined || value === '') return undefined;
    if (typeof value === 'string' || typeof value === 'number' || typeof value === 'boolean')
      return String(value);
    this.remark(name, 'is no text');
    return undefined;
  }

  /** A finite number, or a text of one. */
  number(name: string): number | undefined {
    const value = this.take(name);
    if (value === undefined) return undefined;
    const number = typeof value === 'string' && value.trim() !== '' ? Number(value) : value;
    if (typeof number === 'number' && Number.isFinite(number)) return number;
    this.remark(name, 'is no number');
    return undefined;
  }

  /** A number's own characters, so that nothing is lost to binary fractions. */
  figure(name: string): string | undefined {
    const value = this.text(name);
    return value === undefined ? undefined : (this.remarks.writtenAt([...this.path, name]) ?? value);
  }

  remark(name: string, text: string): void {
    this.remarks.add([...this.path, name], text);
  }

  /** Names that nobody has asked for. */
  get rest(): string[] {
    return Object.keys(this.#values).filter((name) => !this.#asked.has(name));
  }
}
