/**
 * Who is signed in, and what that one may change: pages show only what the gateway would do. The gateway
 * judges again, by the declarations of its routes. Browser.
 */
import { RIGHTS, type Role } from '../core/roles.js';

export interface SignedIn {
  readonly who: string;
  readonly role: Role;
}

let signedIn: SignedIn | undefined;

export function setSignedIn(by: SignedIn | undefined): void {
  signedIn = by;
}

/** Returns whether the one who is signed in may do it; false while nobody is. */
export function may(right: keyof typeof RIGHTS): boolean {
  const allowed: readonly Role[] = RIGHTS[right];
  return signedIn !== undefined && allowed.includes(signedIn.role);
}

export const operatorNow = (): SignedIn | undefined => signedIn;
