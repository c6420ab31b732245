/**
 * The numbers and words of the request's rules, apart from the schema so that the threads that face the network can name them
 * in a refusal without loading TypeBox. Pure; any thread.
 */

/** The specification shows three roles; the others are in use with tools (tool, function) and newer models (developer). */
export const CHAT_ROLES = ['system', 'developer', 'user', 'assistant', 'tool', 'function'] as const;

export const TEMPERATURE_MIN = 0;
export const TEMPERATURE_MAX = 2;
export const TOP_P_MIN = 0;
export const TOP_P_MAX = 1;

/** Zero is valid: the specification forbids negative values alone. */
export const OUTPUT_TOKENS_MIN = 0;

/** `n` multiplies the bill, so it is not passed on unread; 128 is the most that the known providers make of one prompt. */
export const CHOICES_MIN = 1;
export const CHOICES_MAX = 128;
