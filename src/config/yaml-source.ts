/**
 * Parses YAML into plain values, and finds the line of each setting, for error messages. load.ts calls it for
 * the settings, litellm/import.ts for the file that is imported. Processes of commands.
 *
 * Must hold (test/unit/config/yaml-source.test.ts):
 * - A file's size and encoding (UTF-8) are checked before it is parsed (`readConfigFile`). How deep it is,
 *   and the expansion of aliases, are bounded too.
 * - A warning of the parser is an error, because the parser may have read something that was not meant.
 */
import { isUtf8 } from 'node:buffer';
import { closeSync, openSync, readSync } from 'node:fs';
import {
  Composer,
  isAlias,
  isMap,
  isScalar,
  isSeq,
  Lexer,
  LineCounter,
  Parser,
  type CST,
  type Document,
  type Node,
  type ParsedNode,
} from 'yaml';
import { COMMA_IN_NUMBER, ConfigError, isNumberName, type SettingPath } from './config-error.js';

/** Bytes of the longest file of settings. A thousand models with comments have some 500 KB. */
export const CONFIG_BYTES_MAX = 1024 * 1024;
/** YAML aliases that may be expanded: enough for shared blocks, too few for a billion-laughs bomb. */
export const ALIASES_MAX = 100;
/**
 * Lists and maps within each other. The settings have some ten, and LiteLLM's parameters may have a few more.
 * From 900 on the parser overflows the stack, and of 3,000 brackets V8 aborts the process (Node 20.20).
 */
const DEPTH_MAX = 100;

export interface YamlSource {
  /** Plain values; `{}` for an empty file. */
  readonly value: unknown;
  /** Returns the line, from 1, of the setting, or of the nearest one in the file that contains it. */
  lineOf(path: SettingPath): number;
  /**
   * Returns the text of a scalar as it is written, without quotes: `1.10`, although the value is the number
   * 1.1. Undefined if there is no scalar.
   */
  sourceTextAt(path: SettingPath): string | undefined;
  /** The keys that their maps have had before, with their lines. Empty unless `asPyYaml` allows them. */
  readonly repeatedKeys: readonly { readonly line: number; readonly key: string }[];
}

/**
 * Returns the text of a file of settings, or undefined if it is longer than CONFIG_BYTES_MAX. Throws what
 * node:fs throws, and an Error if a byte is not UTF-8, because names in another encoding would be misread.
 * For load.ts, and for cli/config-command.ts, which reads the file to import.
 */
export function readConfigFile(path: string): string | undefined {
  const bytes = readBytes(path, CONFIG_BYTES_MAX);
  if (bytes === undefined || isUtf8(bytes)) return bytes?.toString('utf8');
  // In Latin-1 a character is a byte, so the lines have the bytes as they are.
  const lines = bytes.toString('latin1').split('\n');
  const line = 1 + lines.findIndex((text) => !isUtf8(Buffer.from(text, 'latin1')));
  throw new Error(`line ${line} is not UTF-8: save the file in that encoding`);
}

/**
 * Returns the text of a file, or undefined if the file is longer than `bytesMax`. Throws what node:fs throws.
 * For setting-files.ts, which reads keys and certificates. Bytes that are not UTF-8 become U+FFFD, because a
 * file of certificates may have notes in any encoding between them.
 */
export function readBounded(path: string, bytesMax: number): string | undefined {
  return readBytes(path, bytesMax)?.toString('utf8');
}

function readBytes(path: string, bytesMax: number): Buffer | undefined {
  const file = openSync(path, 'r');
  try {
    const buffer = Buffer.alloc(bytesMax + 1);
    let length = 0;
    for (;;) {
      const bytesRead = readSync(file, buffer, length, buffer.length - length, null);
      length += bytesRead;
      if (bytesRead === 0 || length > bytesMax) break;
    }
    return length > bytesMax ? undefined : buffer.subarray(0, length);
  } finally {
    closeSync(file);
  }
}

/**
 * Parses YAML 1.2 (core schema, no other tags). `asPyYaml`: like PyYAML, with which LiteLLM reads its files,
 * the key `<<` merges another map's entries, and if a map has a key twice the last one counts. Throws
 * ConfigError with lines such as `name:line: …`.
 */
export function parseYaml(text: string, name: string, { asPyYaml = false } = {}): YamlSource {
  const lineCounter = new LineCounter();
  const composer = new Composer({
    version: '1.2',
    schema: 'core',
    customTags: null,
    resolveKnownTags: false,
    merge: asPyYaml,
    strict: true,
    stringKeys: true,
    uniqueKeys: true,
    intAsBigInt: false,
    keepSourceTokens: false,
  });
  // `true`: an empty text is a document too, so there is a first one.
  const [firstDocument, secondDocument] = composer.compose(
    shallowTokens(text, name, lineCounter),
    true,
    text.length,
  );
  const document = firstDocument!;
  const problems = [...document.errors, ...document.warnings];
  const isAllowed = ({ code }: { readonly code: string }): boolean => asPyYaml && code === 'DUPLICATE_KEY';
  const locationOf = (offset: number): string => `${name}:${lineCounter.linePos(offset).line}`;
  const errors = problems
    .filter((problem) => !isAllowed(problem))
    .map(({ code, pos: [from], message }) => {
      const [key = ''] = code === 'DUPLICATE_KEY' ? (/^\w+/.exec(text.slice(from)) ?? []) : [];
      return `${locationOf(from)}: ${isNumberName(key) ? `${key} comes twice: ${COMMA_IN_NUMBER}` : message}`;
    });
  if (secondDocument !== undefined)
    errors.push(`${locationOf(secondDocument.range[0])}: a second document begins here, want one alone`);
  if (errors.length > 0) throw new ConfigError(errors);
  let value: unknown;
  try {
    value = document.toJS({ mapAsMap: false, maxAliasCount: ALIASES_MAX });
  } catch (error) {
    throw new ConfigError([`${name}: ${error instanceof Error ? error.message : 'cannot be read'}`]);
  }
  return {
    value: value ?? {},
    repeatedKeys: problems.filter(isAllowed).map(({ pos: [from] }) => ({
      line: lineCounter.linePos(from).line,
      key: /^[^\s:]*/.exec(text.slice(from))?.[0] ?? '',
    })),
    lineOf: (path) => lineCounter.linePos(positionOf(document, path).offset).line,
    sourceTextAt: (path) => {
      const { node } = positionOf(document, path);
      return isScalar(node) ? node.source : undefined;
    },
  };
}

/**
 * Parses the text up to the step that calls itself for each list and map within another (Composer). Throws
 * ConfigError before that step if they are deeper than DEPTH_MAX. Fills `lineCounter`.
 */
function* shallowTokens(text: string, name: string, lineCounter: LineCounter): Generator<CST.Token, void> {
  const parser = new Parser(lineCounter.addNewLine);
  lineCounter.addNewLine(0);
  for (const lexeme of new Lexer().lex(text)) {
    yield* parser.next(lexeme);
    // Besides the collections that are open, the stack has the document and a scalar.
    if (parser.stack.length > DEPTH_MAX + 2) {
      const { line } = lineCounter.linePos(parser.offset);
      throw new ConfigError([`${name}:${line}: more than ${DEPTH_MAX} lists and maps within each other`]);
    }
  }
  yield* parser.end();
}

/**
 * Returns the offset of the setting's name or list entry, and the node of its value. If the file lacks the
 * setting, returns the offset of the nearest one that contains it, and no node.
 */
function positionOf(
  document: Document.Parsed,
  path: SettingPath,
): { offset: number; node: Node | undefined } {
  let node: Node | null | undefined = document.contents;
  let offset = document.contents?.range[0] ?? 0;
  for (const step of path) {
    if (isAlias(node)) node = node.resolve(document);
    if (isMap(node)) {
      const pair = node.items.findLast((item) => isScalar(item.key) && item.key.value === step);
      if (pair === undefined) return { offset, node: undefined };
      offset = (pair.key as ParsedNode).range[0];
      node = pair.value as Node | null;
    } else if (isSeq(node) && typeof step === 'number') {
      node = node.items[step] as Node | undefined;
      offset = (node as ParsedNode | undefined)?.range[0] ?? offset;
    } else {
      return { offset, node: undefined };
    }
  }
  return { offset, node: (isAlias(node) ? node.resolve(document) : node) ?? undefined };
}
