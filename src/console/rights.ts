/**
 * Who is signed in, and what that person may change, by the roles that admin/ declares. api.ts sets it, pages
 * ask. Browser.
 *
 * Must hold: this hides what would be rejected and protects nothing: the gateway judges each request again,
 * by the declarations of its routes (test/e2e/operator-roles.test.ts).
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
