/** Who has the admin interface, whatever ends when. */
import t from 'tap';
import { Primary, type PrimaryCandidate } from '#src/supervisor/primary.js';

class Candidate implements PrimaryCandidate {
  isFit = true;
  readonly told: string[] = [];

  lead(): void {
    this.told.push('lead');
  }

  follow(): void {
    this.told.push('follow');
  }
}

const candidates = () => [new Candidate(), new Candidate(), new Candidate()] as const;

void t.test('handed over: the former follows when the next leads, not before', async (t) => {
  const [first, second] = candidates();
  const primary = new Primary<Candidate>();
  primary.begin(first);
  const handed = primary.handOver(second);
  t.same([first.told, second.told], [[], ['lead']]);
  primary.onLeads(second);
  await handed;
  t.same(first.told, ['follow']);
  t.equal(primary.current, second);
});

void t.test('the next ends before it leads: the former goes on; both end: another', async (t) => {
  const [first, second, third] = candidates();
  const primary = new Primary<Candidate>();
  primary.begin(first);
  const handed = primary.handOver(second);
  primary.onEnd(second, [first, third]);
  await handed;
  t.equal(primary.current, first);
  t.same([first.told, third.told], [[], []]);
  primary.onEnd(first, [third]);
  t.equal(primary.current, third);
  t.same(third.told, ['lead']);
  primary.onLeads(second);
  t.equal(primary.current, third, 'a late word of one that is gone');
});

void t.test('the next cannot open it in time: the former goes on, and the next stops trying', async (t) => {
  const [first, second, third] = candidates();
  const primary = new Primary<Candidate>();
  primary.begin(first);
  const handed = primary.handOver(second);
  primary.takeBack(third);
  t.equal(primary.current, second, 'another one changes nothing');
  primary.takeBack(second);
  await handed;
  t.equal(primary.current, first);
  t.same([first.told, second.told], [[], ['lead', 'follow']]);
  primary.onLeads(second);
  t.same(first.told, [], 'a late word changes nothing');
});

void t.test('the former has ended too: the next tries on, and nobody waits for it', async (t) => {
  const [first, second] = candidates();
  const primary = new Primary<Candidate>();
  primary.begin(first);
  const handed = primary.handOver(second);
  primary.onEnd(first, [second]);
  primary.takeBack(second);
  await handed;
  t.equal(primary.current, second);
  t.same(second.told, ['lead']);
});

void t.test('the former ends while the next begins to lead', async (t) => {
  const [first, second, third] = candidates();
  const primary = new Primary<Candidate>();
  primary.begin(first);
  const handed = primary.handOver(second);
  primary.onEnd(first, [second, third]);
  primary.onLeads(second);
  await handed;
  t.equal(primary.current, second);
  t.same(first.told, []);
});

void t.test('nobody is fit: the first that is', (t) => {
  const [first, second, third] = candidates();
  const primary = new Primary<Candidate>();
  primary.begin(first);
  second.isFit = third.isFit = false;
  primary.onEnd(first, [second, third]);
  t.equal(primary.current, undefined);
  second.isFit = third.isFit = true;
  primary.onFit(third);
  primary.onFit(second);
  t.equal(primary.current, third);
  t.same([second.told, third.told], [[], ['lead']]);
  t.end();
});

void t.test('one that serves, but is about to end, does not get it', (t) => {
  const [first, second] = candidates();
  const primary = new Primary<Candidate>();
  first.isFit = false;
  primary.onFit(first);
  t.equal(primary.current, undefined);
  primary.onFit(second);
  t.equal(primary.current, second);
  t.same([first.told, second.told], [[], ['lead']]);
  t.end();
});
