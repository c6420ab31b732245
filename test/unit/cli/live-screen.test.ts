import { EventEmitter } from 'node:events';
import type { WriteStream } from 'node:tty';
import t from 'tap';
import { LiveScreen } from '#src/cli/live-screen.js';
import type { FrameLine } from '#src/cli/status-frame.js';

/** As much of a terminal as the screen uses: what is shown, and every write. */
class Terminal extends EventEmitter {
  columns = 80;
  rows = 24;
  readonly writes: string[] = [];
  readonly lines: string[] = ['$ tollgate status'];
  #row = 1;

  write(text: string): boolean {
    this.writes.push(text);
    for (const [part] of text.matchAll(/\u001b\[\??\d*[A-Za-z]|[\r\n]|[^\u001b\r\n]+/g)) this.#take(part);
    return true;
  }

  #take(part: string): void {
    const up = /^\u{1b}\[(\d+)A$/u.exec(part);
    if (part === '\n') this.#row += 1;
    else if (up !== null) this.#row -= Number(up[1]);
    else if (part === '\u{1b}[J') this.lines.length = this.#row;
    else if (part === '\u{1b}[H') this.#row = 0;
    else if (part === '\u{1b}[2J') this.lines.length = 0;
    else if (!part.startsWith('\u{1b}') && part !== '\r') this.lines[this.#row] = part;
  }
}

const plain = (...texts: string[]): FrameLine[] => texts.map((text) => ({ text, style: 'plain' }));

void t.test('frames replace each other in place, one write each', (t) => {
  const terminal = new Terminal();
  const listeners = process.listenerCount('exit');
  const screen = new LiveScreen(terminal as unknown as WriteStream, { colors: true });
  t.same(screen.size, { columns: 80, rows: 23 }, 'the last row is the cursor’s');
  t.equal(terminal.writes[0], '\u{1b}[?25l', 'no cursor');
  t.equal(process.listenerCount('exit'), listeners + 1, 'which comes back at the end');

  screen.draw(plain('one', 'two', 'three'));
  t.same(terminal.lines, ['$ tollgate status', 'one', 'two', 'three']);
  screen.draw(plain('1', '2'));
  t.same(terminal.lines, ['$ tollgate status', '1', '2'], 'what was longer is gone');
  screen.draw(plain('I', 'II', 'III', 'IIII'));
  t.same(terminal.lines, ['$ tollgate status', 'I', 'II', 'III', 'IIII'], 'and what was there before stays');
  t.equal(terminal.writes.length, 4);

  terminal.columns = 40;
  terminal.emit('resize');
  screen.draw(plain('small'));
  t.same(terminal.lines, ['small'], 'begins anew where lines were broken');
  t.equal(screen.size.columns, 40);
  t.end();
});

void t.test('styles, unless they are not wanted', (t) => {
  const lines: FrameLine[] = [
    { text: 'A', style: 'alarm' },
    { text: 'B', style: 'plain' },
  ];
  for (const colors of [true, false]) {
    const terminal = new Terminal();
    new LiveScreen(terminal as unknown as WriteStream, { colors }).draw(lines);
    t.equal(terminal.writes.at(-1)!.includes('\u{1b}[31mA\u{1b}[0m'), colors);
    t.same(terminal.lines.slice(1), ['A', 'B']);
  }
  t.end();
});
