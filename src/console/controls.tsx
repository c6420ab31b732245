/**
 * Small parts that every page uses: fields, choices, marks, notices. Browser.
 */
import type { ComponentChildren, JSX } from 'preact';
import { useId, useState } from 'preact/hooks';
import { DECIMALS_OF_MONEY, money } from './format.js';
import { Icon } from './icons.js';
import { type Account, type Range, RANGES } from './views.js';

interface FieldProps {
  readonly label: string;
  readonly hint?: string | undefined;
  readonly children: (id: string, hintId: string | undefined) => ComponentChildren;
}

/** A label, its control, and what helps to fill it in. */
export function Field({ label, hint, children }: FieldProps) {
  const id = useId();
  const hintId = hint === undefined ? undefined : `${id}-hint`;
  return (
    <div class="field">
      <label for={id}>{label}</label>
      {children(id, hintId)}
      {hint === undefined ? null : (
        <small id={hintId} class="muted">
          {hint}
        </small>
      )}
    </div>
  );
}

interface TextFieldProps {
  readonly label: string;
  readonly hint?: string;
  readonly value: string;
  readonly onText: (text: string) => void;
  readonly type?: 'text' | 'password' | 'search' | 'number' | 'date';
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

export function TextField({ label, hint, value, onText, ...rest }: TextFieldProps) {
  return (
    <Field label={label} hint={hint}>
      {(id, hintId) => (
        <input
          {...(rest as JSX.IntrinsicElements['input'])}
          id={id}
          aria-describedby={hintId}
          value={value}
          onInput={(event) => onText(event.currentTarget.value)}
          autocomplete={rest.autocomplete ?? 'off'}
          spellcheck={false}
        />
      )}
    </Field>
  );
}

interface ChoiceProps {
  readonly label: string;
  readonly hint?: string;
  readonly value: string;
  readonly options: readonly (readonly [value: string, text: string])[];
  readonly onChoice: (value: string) => void;
}

export function Choice({ label, hint, value, options, onChoice }: ChoiceProps) {
  return (
    <Field label={label} hint={hint}>
      {(id, hintId) => (
        <select
          id={id}
          aria-describedby={hintId}
          value={value}
          onChange={(event) => onChoice(event.currentTarget.value)}
        >
          {options.map(([option, text]) => (
            <option key={option} value={option} selected={option === value}>
              {text}
            </option>
          ))}
        </select>
      )}
    </Field>
  );
}

interface SegmentsProps<Value extends string> {
  readonly label: string;
  readonly value: Value;
  readonly options: readonly Value[];
  readonly textOf?: (value: Value) => string;
  readonly onChoice: (value: Value) => void;
}

/** One of a few, all in sight. */
export function Segments<Value extends string>({
  label,
  value,
  options,
  textOf,
  onChoice,
}: SegmentsProps<Value>) {
  return (
    <div class="segments" role="group" aria-label={label}>
      {options.map((option) => (
        <button key={option} type="button" aria-pressed={option === value} onClick={() => onChoice(option)}>
          {textOf === undefined ? option : textOf(option)}
        </button>
      ))}
    </div>
  );
}

export type Tone = 'good' | 'warn' | 'bad' | 'plain';

export function Badge({ tone, children }: { readonly tone: Tone; readonly children: ComponentChildren }) {
  return <span class={`badge ${tone}`}>{children}</span>;
}

/** Whether the keys of an account are taken. */
export function StandingBadge({ account }: { readonly account: Pick<Account, 'active' | 'plan_missing'> }) {
  if (!account.active) return <Badge tone="bad">Disabled</Badge>;
  return account.plan_missing === true ? (
    <Badge tone="bad">Plan missing</Badge>
  ) : (
    <Badge tone="good">Active</Badge>
  );
}

/** What went wrong, in words; read out at once. */
export function ErrorText({ text }: { readonly text: string | undefined }) {
  return text === undefined ? null : (
    <p class="notice bad" role="alert">
      {text}
    </p>
  );
}

/** How long the button says that it has copied. */
const COPIED_MS = 2_000;

export function CopyButton({ text, what }: { readonly text: string; readonly what: string }) {
  const [copied, setCopied] = useState(false);
  const copy = async (): Promise<void> => {
    await copyText(text);
    setCopied(true);
    setTimeout(() => setCopied(false), COPIED_MS);
  };
  return (
    <button type="button" class="quiet" aria-label={`Copy ${what}`} onClick={() => void copy()}>
      <Icon name={copied ? 'check' : 'copy'} />
      <span aria-live="polite">{copied ? 'Copied' : 'Copy'}</span>
    </button>
  );
}

/** Over plain HTTP a browser gives its clipboard to a page on this host alone. */
async function copyText(text: string): Promise<void> {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = document.createElement('textarea');
    area.value = text;
    (document.querySelector('dialog[open]') ?? document.body).append(area);
    area.select();
    // Deprecated and without a successor where `clipboard` is not there.
    // eslint-disable-next-line @typescript-eslint/no-deprecated
    document.execCommand('copy');
    area.remove();
  }
}

/** A name that somebody else has chosen: shown as text, cut where there is no room, and whole on pointing. */
export function Name({ text }: { readonly text: string }) {
  return (
    <bdi class="name" title={text}>
      {text}
    </bdi>
  );
}

/** Money as it fits, in full under the pointer and for screen readers. */
export function Money({ amount, decimalsMax }: { readonly amount: string; readonly decimalsMax?: number }) {
  const shown = money(amount, decimalsMax);
  const full = money(amount, DECIMALS_OF_MONEY);
  return shown === full ? <>{shown}</> : <span title={full}>{shown}</span>;
}

/*
 * How much of the past is shown. Browser.
 */

export const RANGE_TEXTS: Readonly<Record<Range, string>> = {
  '5m': '5 min',
  '1h': '1 hour',
  '6h': '6 hours',
  '24h': '24 hours',
};

interface RangeChoiceProps {
  readonly value: Range;
  readonly onChoice: (range: Range) => void;
}

export function RangeChoice({ value, onChoice }: RangeChoiceProps) {
  return (
    <Segments
      label="Time shown"
      value={value}
      options={RANGES}
      textOf={(range) => RANGE_TEXTS[range]}
      onChoice={onChoice}
    />
  );
}
