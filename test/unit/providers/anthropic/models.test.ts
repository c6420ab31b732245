/** What the names of models say. */
import t from 'tap';
import { traitsOf } from '#src/providers/anthropic/models.js';

/** Letters: sampling, one sampler, schemas, forced tools, system turns. */
const MODELS: [name: string, thinking: string, off: string | undefined, letters: string, efforts: number][] =
  [
    ['claude-2.1', 'none', 'absent', 's--f-', 0],
    ['claude-v2', 'none', 'absent', 's--f-', 0],
    ['anthropic.claude-instant-v1', 'none', 'absent', 's--f-', 0],
    ['claude-instant-1.2', 'none', 'absent', 's--f-', 0],
    ['claude-3-haiku-20240307', 'none', 'absent', 's--f-', 0],
    ['claude-3-5-sonnet-20241022', 'none', 'absent', 's--f-', 0],
    ['claude-3-7-sonnet-20250219', 'budget', 'absent', 's--f-', 0],
    ['claude-opus-4-20250514', 'budget', 'absent', 's--f-', 0],
    ['claude-opus-4-1@20250805', 'budget', 'absent', 's1-f-', 0],
    ['claude-sonnet-4-5', 'budget', 'absent', 's1cf-', 0],
    ['us.anthropic.claude-haiku-4-5-20251001-v1:0', 'budget', 'absent', 's1cf-', 0],
    ['claude-opus-4-5@20251101', 'budget', 'absent', 's1cf-', 0],
    ['claude-sonnet-4-6', 'either', 'absent', 's1cf-', 4],
    ['claude-opus-4-7-20260416', 'adaptive', 'absent', '--cf-', 5],
    ['claude-mythos-preview', 'adaptive', undefined, '--cf-', 5],
    ['claude-opus-4-8', 'adaptive', 'absent', '--cfy', 5],
    ['claude-opus-4-10', 'adaptive', 'absent', '--cfy', 5],
    ['claude-opus-5', 'adaptive', 'disabled', '--cfy', 5],
    ['claude-sonnet-5', 'adaptive', 'disabled', '--cfy', 5],
    ['claude-fable-5', 'adaptive', undefined, '--cfy', 5],
    ['claude-mythos-5-1', 'adaptive', undefined, '--c-y', 5],
    ['claude-opus-5-5', 'adaptive', undefined, '--c-y', 5],
    ['claude-sonnet-5-5', 'adaptive', 'between_tools', '--c-y', 5],
    ['claude-haiku-5-5', 'adaptive', 'disabled', '--cfy', 5],
    ['of-the-future', 'adaptive', undefined, '--c-y', 5],
    ['claude-4-opus-20250514', 'budget', 'absent', 's--f-', 0],
    ['anthropic/claude-4.5-sonnet', 'budget', 'absent', 's1cf-', 0],
    ['claude-5-fable', 'adaptive', undefined, '--cfy', 5],
    ['claude-5.5-haiku-latest', 'adaptive', 'disabled', '--cfy', 5],
    ['claude-5-5-sonnet', 'adaptive', 'between_tools', '--c-y', 5],
    ['claude-opus-12', 'adaptive', undefined, '--c-y', 5],
  ];

void t.test('models', (t) => {
  for (const [name, thinking, off, letters, efforts] of MODELS) {
    const traits = traitsOf(name);
    const { allowsSampling, hasOneSampler, obeysSchemas, canForceTools, allowsSystemTurns } = traits;
    const found = `${allowsSampling ? 's' : '-'}${hasOneSampler && allowsSampling ? '1' : '-'}${obeysSchemas ? 'c' : '-'}${canForceTools ? 'f' : '-'}${allowsSystemTurns ? 'y' : '-'}`;
    t.strictSame(
      [traits.thinking, traits.thinkingOff, found, traits.efforts.length],
      [thinking, off, letters, efforts],
      name,
    );
    t.equal(traitsOf(name), traits, 'the same again');
  }
  for (let index = 0; index < 600; index++) traitsOf(`claude-opus-4-8-${index}`);
  t.end();
});

void t.test('schemas are on Vertex since 4.6', (t) => {
  const schemas = (name: string, onVertex: boolean): boolean => traitsOf(name, { onVertex }).obeysSchemas;
  t.same(
    ['claude-sonnet-4-5@20250929', 'claude-sonnet-4-6', 'claude-opus-4-7', 'claude-sonnet-4@20250514'].map(
      (name) => [schemas(name, false), schemas(name, true)],
    ),
    [
      [true, false],
      [true, true],
      [true, true],
      [false, false],
    ],
  );
  t.end();
});
