/**
 * Lines that are redrawn in place on a terminal, below what was there before: no other screen, so the last frame stays when
 * the command ends.
 */
import type { WriteStream } from 'node:tty';
import type { FrameLine, FrameSize } from './status-frame.js';

const HIDE_CURSOR = '\u{1b}[?25l';
const SHOW_CURSOR = '\u{1b}[?25h';
const CLEAR_TO_LINE_END = '\u{1b}[K';
const CLEAR_BELOW = '\u{1b}[J';
const CLEAR_ALL = '\u{1b}[H\u{1b}[2J';
const STYLES = { title: '\u{1b}[1m', alarm: '\u{1b}[31m', plain: '' } as const;
const STYLE_END = '\u{1b}[0m';

/** Of a terminal that does not tell. */
const SIZE_DEFAULT: FrameSize = { columns: 80, rows: 24 };

export class LiveScreen {
  readonly #terminal: WriteStream;
  readonly #colors: boolean;
  #drawnLines = 0;
  #resized = false;

  constructor(terminal: WriteStream, options: { readonly colors: boolean }) {
    this.#terminal = terminal;
    this.#colors = options.colors;
    // The terminal has broken the lines anew, so where they began is not known any more.
    terminal.on('resize', () => {
      this.#resized = true;
    });
    terminal.write(HIDE_CURSOR);
    // Whatever ends the process: a terminal without a cursor is no terminal.
    process.once('exit', () => terminal.write(SHOW_CURSOR));
  }

  /** What a frame may fill: the last row stays free, for the cursor, so that nothing scrolls. */
  get size(): FrameSize {
    const { columns, rows } = this.#terminal;
    return { columns: columns || SIZE_DEFAULT.columns, rows: (rows || SIZE_DEFAULT.rows) - 1 };
  }

  /** One write, and each line is overwritten before what is left of it is cleared: nothing flickers. */
  draw(lines: readonly FrameLine[]): void {
    const start = this.#resized ? CLEAR_ALL : this.#drawnLines === 0 ? '' : `\u{1b}[${this.#drawnLines}A\r`;
    const body = lines.map((line) => `${this.#styled(line)}${CLEAR_TO_LINE_END}\n`).join('');
    this.#terminal.write(start + body + CLEAR_BELOW);
    this.#drawnLines = lines.length;
    this.#resized = false;
  }

  #styled({ text, style }: FrameLine): string {
    return style === 'plain' || !this.#colors ? text : STYLES[style] + text + STYLE_END;
  }
}
