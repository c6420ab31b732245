/** What the gateways of one supervisor are known by, to the store that they share. Supervisor process. */
import { invariant } from '../core/errors.js';
import { identityOf } from '../store/process-identity.js';

/** Of this process's group: no other supervisor of this host ever has the same. */
export function ownGroupId(): string {
  const id = identityOf(process.pid);
  invariant(id !== undefined, '/proc tells who this process is');
  return id;
}
