/**
 * Small components that the pages use: the logo, icons, fields, choices, badges (also for the state of an
 * account), error messages, a button that copies, names, money and tiles, each a number with its name and a
 * line that explains it. Browser.
 *
 * Must hold: each icon is beside words, each field has a label, and an error is read out, so that the pages
 * can be used without seeing them (test/e2e/console.test.ts). A choice shows the value that counts
 * (test/e2e/console-rules.test.ts).
 */
import type { ComponentChildren, JSX } from 'preact';
import { useEffect, useId, useRef, useState } from 'preact/hooks';
import type { AccountView } from '../admin/views.js';
import { DECIMALS_OF_MONEY, localOf, money } from './format.js';
import { type Range, RANGES } from './live.js';

/** SVG paths. main.tsx draws the icon of each page by the page's name. */
const ICON_PATHS = {
  overview: 'M3 12h4l3-8 4 16 3-8h4',
  accounts:
    'M9 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM2 21v-1a6 6 0 0 1 14 0v1M17 4a4 4 0 0 1 0 7M19 15a6 6 0 0 1 3 5v1',
  groups: 'M9 3h6v5H9zM3 16h6v5H3zM15 16h6v5h-6zM12 8v4M6 16v-4h12v4',
  calls: 'M3 6h18M3 12h12M3 18h15',
  changes: 'M4 4v6h6M4.5 10a8 8 0 1 1-.5 4M12 8v4l3 2',
  operators: 'M12 11a4 4 0 1 0 0-8 4 4 0 0 0 0 8zM4 21v-1a8 8 0 0 1 16 0v1',
  usage: 'M4 20V10M10 20V4M16 20v-8M21 20H2',
  playground: 'M4 5h16v11H9l-5 4z',
  upstreams: 'M12 3v6M12 9l-7 6v6M12 9l7 6v6M12 9v12',
  settings: 'M4 7h10M18 7h2M16 5v4M4 17h2M10 17h10M8 15v4',
  copy: 'M9 9h11v11H9zM5 15H4V4h11v1',
  check: 'M4 12l5 5L20 6',
  back: 'M15 5l-7 7 7 7',
  plus: 'M12 5v14M5 12h14',
  out: 'M10 4H4v16h6M15 8l4 4-4 4M19 12H9',
} as const;

export type IconName = keyof typeof ICON_PATHS;

export function Icon({ name }: { readonly name: IconName }) {
  return (
    <svg class="icon" viewBox="0 0 24 24" aria-hidden="true" focusable="false">
      <path d={ICON_PATHS[name]} />
    </svg>
  );
}

/** Drawn beside the name of the product, so screen readers leave it out. icon.svg is the same drawing. */
export function Logo() {
  return (
    <svg class="mark" viewBox="0 0 32 32" aria-hidden="true" focusable="false">
      <rect width="32" height="32" rx="8" />
      <path d="M7 23V11a2 2 0 0 1 2-2h1a2 2 0 0 1 2 2v12M12 14l13-4v3.5l-13 4" />
    </svg>
  );
}

/** A button that submits no form. */
export function Button(props: JSX.IntrinsicElements['button']) {
  return <button type="button" {...props} />;
}

/** The value of a control, and the function that sets the value. */
export interface Input<Value extends string = string> {
  readonly value: Value;
  readonly onValue: (value: Value) => void;
}

/** Returns the value of one control and its setter; spread them into the control. */
export function useInput(initial = ''): Input {
  const [value, onValue] = useState(initial);
  return { value, onValue };
}

interface FieldProps {
  readonly label: string;
  readonly hint?: string | undefined;
  /** Returns the control, which must have the arguments as `id` and `aria-describedby`. */
  readonly children: (id: string, hintId: string | undefined) => ComponentChildren;
}

/** A label, its control, and a hint how to fill the control in. */
export function Field({ label, hint, children }: FieldProps) {
  const id = useId();
  const hintId = hint === undefined ? undefined : `${id}-hint`;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id, hintId)}
      {hint !== undefined && (
        <small id={hintId} class="muted">
          {hint}
        </small>
      )}
    </div>
  );
}

interface TextFieldProps extends Input {
  readonly label: string;
  readonly hint?: string;
  readonly type?: 'text' | 'password' | 'search' | 'number' | 'date' | 'datetime-local';
  readonly autocomplete?: 'off' | 'current-password';
  readonly inputMode?: 'decimal';
  readonly placeholder?: string;
  readonly maxLength?: number;
  readonly min?: string;
  readonly max?: string;
  readonly step?: string;
  readonly required?: boolean;
  readonly autofocus?: boolean;
}

/** Browsers fill the field in only if `autocomplete` says so: not names, keys or amounts. */
export function TextField({ label, hint, value, onValue, ...attributes }: TextFieldProps) {
  return (
    <Field label={label} hint={hint}>
      {(id, hintId) => (
        <input
          {...(attributes as JSX.IntrinsicElements['input'])}
          id={id}
          aria-describedby={hintId}
          value={value}
          onInput={(event) => onValue(event.currentTarget.value)}
          autocomplete={attributes.autocomplete ?? 'off'}
          spellcheck={false}
        />
      )}
    </Field>
  );
}

interface ChoiceProps extends Input {
  readonly label: string;
  readonly hint?: string | undefined;
  /** Values with their texts. A string is a value and its text. */
  readonly options: readonly (string | readonly [value: string, text: string])[];
}

/**
 * A value that is no option is added as one: the settings may have it no more, or the options have not come
 * yet. A browser would show an empty field, and the value would count all the same.
 */
export function Choice({ label, hint, value, onValue, options }: ChoiceProps) {
  const pairs = options.map((option) => (typeof option === 'string' ? ([option, option] as const) : option));
  const shown = pairs.some(([option]) => option === value) ? pairs : [...pairs, [value, value] as const];
  return (
    <Field label={label} hint={hint}>
      {(id, hintId) => (
        <select
          id={id}
          aria-describedby={hintId}
          value={value}
          onChange={(event) => onValue(event.currentTarget.value)}
        >
          {shown.map(([option, text]) => (
            <option key={option} value={option} selected={option === value}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

/** Returns `options` of a Choice in which each id is its own text. */
export const idsOf = (items: readonly { readonly id: string }[]): string[] => items.map(({ id }) => id);

interface ButtonChoiceProps<Value extends string> extends Input<Value> {
  readonly label: string;
  readonly options: readonly Value[];
  readonly textOf?: (value: Value) => string;
}

/** A choice that shows all of its options, each as a button. */
export function ButtonChoice<Value extends string>(props: ButtonChoiceProps<Value>) {
  const { label, value, onValue, options, textOf = String } = props;
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map((option) => (
        <Button key={option} aria-pressed={option === value} onClick={() => onValue(option)}>
          {textOf(option)}
        </Button>
      ))}
    </div>
  );
}

export const RANGE_TEXTS: Readonly<Record<Range, string>> = {
  '5m': '5 min',
  '1h': '1 hour',
  '6h': '6 hours',
  '24h': '24 hours',
};

export function RangeChoice(input: Input<Range>) {
  return (
    <ButtonChoice label="Time shown" options={RANGES} textOf={(range) => RANGE_TEXTS[range]} {...input} />
  );
}

export type Tone = 'good' | 'warn' | 'bad' | 'plain';

export function Badge({ tone, children }: { readonly tone: Tone; readonly children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

type AccountState = Pick<AccountView, 'active' | 'plan_missing'>;

/** Returns tone and text of a badge: whether the keys of an account are accepted. */
export function accountStateOf({ active, plan_missing: planMissing }: AccountState): readonly [Tone, string] {
  if (!active) return ['bad', 'Disabled'];
  return planMissing === true ? ['bad', 'Plan missing'] : ['good', 'Active'];
}

export function StatusBadge({ account }: { readonly account: AccountState }) {
  const [tone, text] = accountStateOf(account);
  return <Badge tone={tone}>{text}</Badge>;
}

/** A field for a moment in the browser's time zone. Its value is Unix seconds as text, empty for none. */
export function TimeField({ label, value, onValue }: Input & { readonly label: string }) {
  /**
   * A typed text that is no moment yet: after its first digit, 2025 is the year 2, which is before 1970. A
   * year of five digits is no moment either, because `Date.parse` does not read it.
   */
  const [unfinished, setUnfinished] = useState<string>();
  useEffect(() => setUnfinished(undefined), [value]);
  const onText = (text: string): void => {
    const seconds = Date.parse(text) / 1_000;
    const isValue = text === '' || seconds >= 0;
    setUnfinished(isValue ? undefined : text);
    if (isValue) onValue(text === '' ? '' : String(seconds));
  };
  // An address that somebody typed may have any text as the value.
  const text = unfinished ?? (/^\d{1,11}$/.test(value) ? localOf(Number(value)) : '');
  return <TextField label={label} type="datetime-local" value={text} onValue={onText} />;
}

/** An error message, which screen readers read at once; nothing if `text` is undefined. */
export function ErrorText({ text }: { readonly text: string | undefined }) {
  return text === undefined ? null : (
    <p class="notice bad" role="alert">
      {text}
    </p>
  );
}

/** How long the button says whether the text was copied. */
const COPIED_MS = 2_000;

/** `noun`: what the text is, for screen readers: `the code`. */
export function CopyButton({ text, noun }: { readonly text: string; readonly noun: string }) {
  const [outcome, setOutcome] = useState<'Copied' | 'Not copied'>();
  const timer = useRef<ReturnType<typeof setTimeout>>(undefined);
  const copy = async (): Promise<void> => {
    const isCopied = await copyText(text);
    setOutcome(isCopied ? 'Copied' : 'Not copied');
    clearTimeout(timer.current);
    timer.current = setTimeout(() => setOutcome(undefined), COPIED_MS);
  };
  return (
    <Button class="quiet" aria-label={`Copy ${noun}`} onClick={() => void copy()}>
      <Icon name={outcome === 'Copied' ? 'check' : 'copy'} />
      <span aria-live="polite">{outcome ?? 'Copy'}</span>
    </Button>
  );
}

/**
 * Returns whether the clipboard has the text. Over plain HTTP browsers give `navigator.clipboard` only to
 * pages of localhost, so other pages copy by a selected text area.
 */
async function copyText(text: string): Promise<boolean> {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    const textArea = document.createElement('textarea');
    textArea.value = text;
    // In the open dialog if there is one, because nothing outside of it can be selected.
    (document.querySelector('dialog[open]') ?? document.body).append(textArea);
    textArea.select();
    // The function is deprecated, and has no successor if there is no `clipboard`.
    // oxlint-disable-next-line typescript/no-deprecated
    const isCopied = document.execCommand('copy');
    textArea.remove();
    return isCopied;
  }
}

/**
 * A name that somebody else chose. It is cut if it is too long for its place; the pointer then shows all of
 * it. <bdi>, because a name in a right-to-left script must not reorder the text around it.
 */
export function Name({ text }: { readonly text: string }) {
  return (
    <bdi class="name" title={text}>
      {text}
    </bdi>
  );
}

/** A change of a value. <bdi>: as in Name. */
export function BeforeAfter({ before, after }: { readonly before: string; readonly after: string }) {
  return (
    <>
      <del>
        <bdi>{before}</bdi>
      </del>{' '}
      <span aria-hidden="true">→</span>{' '}
      <ins>
        <bdi>{after}</bdi>
      </ins>
    </>
  );
}

/** As `Money`, for narrow places: the style sheet replaces the decimals that do not fit by `…`. */
export function CutMoney({ amount }: { readonly amount: string }) {
  // `money` gives two decimals at least.
  const [whole, decimals] = money(amount).split('.');
  return (
    <span class="cut-money" title={money(amount, DECIMALS_OF_MONEY)}>
      <span>{whole}</span>
      <span class="decimals">.{decimals}</span>
    </span>
  );
}

/** Money with at most `decimalsMax` decimals, by default those of `money`; the pointer shows them all. */
export function Money({ amount, decimalsMax }: { readonly amount: string; readonly decimalsMax?: number }) {
  const shown = money(amount, decimalsMax);
  const full = money(amount, DECIMALS_OF_MONEY);
  return shown === full ? <>{shown}</> : <span title={full}>{shown}</span>;
}

/** `hint`: a line below the value. Names are unique in their Tiles. */
export type Tile = readonly [name: string, value: ComponentChildren, hint: string];

interface TilesProps {
  /** The name of the tiles for screen readers. */
  readonly label: string;
  readonly tiles: readonly Tile[];
  readonly isSmall?: boolean;
}

export function Tiles({ label, tiles, isSmall = false }: TilesProps) {
  return (
    <dl class={isSmall ? 'tiles small' : 'tiles'} aria-label={label}>
      {tiles.map(([name, value, hint]) => (
        <div key={name} class="tile">
          <dt>{name}</dt>
          <dd>
            <b>{value}</b>
            <small class="muted">{hint}</small>
          </dd>
        </div>
      ))}
    </dl>
  );
}
