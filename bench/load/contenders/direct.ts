/**
 * The upstream alone, without anything in front: what every other contender has in common.
 */
import type { MockProcess } from '../../../test/support/mock.js';
import { processTree } from '../../support/proc.js';
import { openCall, type Contender } from './contender.js';

export const directTo = (mock: MockProcess): Contender => ({
  name: 'direct',
  port: mock.port,
  pids: () => processTree(mock.child.pid),
  callOf: openCall,
});
