// @ts-check

/** Sign-in failed; the message says what to do. */
export class SignInError extends Error {}
