/**
 * How much of the past is shown. Browser.
 */
import { Segments } from './controls.js';
import { RANGES, type Range } from './views.js';

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
