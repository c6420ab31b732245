/** What costs more than tokens in a Messages request, and the least bound of its output. */
import t from 'tap';
import { costlyMembersIn, outputTokensMin, summarisingEditIn } from '#src/doors/messages/messages-rules.js';

void t.test('tools that the caller runs cost tokens alone, any other more', (t) => {
  // The members of ClientToolUnion and BetaClientToolUnion of @anthropic-ai/sdk 1.12.
  for (const type of [
    ...[undefined, null, 'custom', 'bash_20250124', 'text_editor_20250728', 'memory_20250818'],
    ...['computer_20251124', 'browser_toolset_20260801', 'computer_toolset_20260801'],
  ])
    t.same(costlyMembersIn({ tools: [{ name: 'f', type }] }), [], String(type));
  for (const type of [
    'web_search_20250305',
    'code_execution_20250825',
    'of_the_future_1',
    'custom2',
    'bash',
    '',
    7,
  ])
    t.same(costlyMembersIn({ tools: [{ type: 'custom' }, { type }] }), ['hosted_tools'], String(type));
  for (const tools of [undefined, null, []]) t.same(costlyMembersIn({ tools }), []);
  t.end();
});

void t.test('edits that only clear cost nothing, any other may', (t) => {
  const CLEARS = { type: 'clear_tool_uses_20250919' };
  for (const edits of [undefined, null, [], [CLEARS], 'x']) {
    t.equal(summarisingEditIn({ edits }), -1);
    t.same(costlyMembersIn({ context_management: { edits } }), []);
  }
  for (const edit of [{ type: 'compact_20260112' }, { type: 'of_the_future' }, {}, null, 'clear_']) {
    t.equal(summarisingEditIn({ edits: [CLEARS, edit] }), 1);
    t.same(costlyMembersIn({ context_management: { edits: [CLEARS, edit] } }), ['context_management']);
  }
  for (const management of [undefined, null, 'x', []]) t.equal(summarisingEditIn(management), -1);
  for (const compaction of [undefined, null, false]) t.same(costlyMembersIn({ compaction }), []);
  for (const compaction of [{ type: 'summarize' }, {}, 'x'])
    t.same(costlyMembersIn({ compaction }), ['context_management']);
  t.end();
});

void t.test('the output has room for more than the thoughts', (t) => {
  t.equal(outputTokensMin({ thinking: { type: 'enabled', budget_tokens: 1_024 } }), 1_025);
  for (const thinking of [
    undefined,
    null,
    { type: 'disabled', budget_tokens: 1_024 },
    { type: 'enabled' },
    ...[-1, 0, 1.5, Infinity, '1024', 2 ** 53].map((tokens) => ({ type: 'enabled', budget_tokens: tokens })),
  ])
    t.equal(outputTokensMin({ thinking }), 1, JSON.stringify(thinking));
  t.end();
});
