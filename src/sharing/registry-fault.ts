/**
 * Why a host cannot work with the registry that hosts share, beside not reaching it. Main thread.
 */

/** Expected: this host's accounts and keys are no older state of the shared ones. Nothing is mixed; an operator must decide. */
export class RegistryDiverged extends Error {
  readonly code = 'registry_diverged';

  constructor(reason: string) {
    super(
      `${reason} Nothing of it was changed. To have this host take over the shared accounts and keys, start it on an ` +
        'empty data directory; what it alone has must be created anew.',
    );
    this.name = 'RegistryDiverged';
  }
}

/** Another process of this host has brought the store further meanwhile. */
export class Superseded extends Error {}
