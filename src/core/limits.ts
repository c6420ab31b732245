/**
 * Every bound of the program that is not a setting, with its reason. Bounds that an operator may move are in
 * config/schema.ts. Any thread.
 */

/** Requests a minute that a plan may allow; the window's words are sized for it. */
export const REQUESTS_PER_MINUTE_MAX = 1_000_000;

/** Calls a day that a plan may allow: a million a minute for a whole day. */
export const CALLS_PER_DAY_MAX = 1_440_000_000;

/** Calls in flight in one process. The call's slot is 20 bits of its identifier. */
export const CALLS_IN_FLIGHT_MAX = 1 << 20;

/**
 * Listener threads and upstream workers of one process: each pair has a port of its own, so their product
 * stays small.
 */
export const LISTENERS_MAX = 64;
export const WORKERS_MAX = 64;

/** Two counter threads, so that the count of a long prompt does not hold up the parsing of a large body. */
export const COUNTER_THREADS_MAX = 2;

/** Accounts in one process: 1 GiB of addresses, and 32-bit indices still reach all of its words. */
export const ACCOUNTS_MAX = 4_194_304;

/** Keys in one process: 768 MiB of records; beyond that one process is the wrong place. */
export const KEYS_MAX = 16_777_216;

/**
 * One event of an upstream's stream. The longest seen is a tool call of some 100 KB; beyond this it is
 * garbage.
 */
export const SSE_EVENT_BYTES_MAX = 1024 * 1024;

/** A whole response that an upstream may give; it is held in a worker until it has been checked. */
export const UPSTREAM_RESPONSE_BYTES_MAX = 16 * 1024 * 1024;

/**
 * What the whole responses of a worker hold together, while they come and while slow clients take them: 16 of
 * the longest.
 */
export const WHOLE_RESPONSES_BYTES_MAX = 16 * UPSTREAM_RESPONSE_BYTES_MAX;
/** Whole answers up to this hold no more than a stream does, and are bounded by the calls in flight. */
export const WHOLE_RESPONSE_BYTES_UNCOUNTED = 256 * 1024;

/** One message of an upstream's error that is handed on; longer ones are cut. */
export const UPSTREAM_MESSAGE_CHARS_MAX = 1_000;

/**
 * What one frame from worker to listener carries at most, so that one large response does not delay the
 * others.
 */
export const FRAME_BYTES_MAX = 64 * 1024;

/**
 * A provider puts words of its own before a prompt: tools' instructions, a template of the model. Beyond it a
 * report is not believed.
 */
export const PROMPT_TOKENS_BESIDE_BODY = 4_096;
/**
 * Of an image, a file, a search of the web, which a few bytes of the body name: what the largest of them are
 * billed for.
 */
export const PROMPT_TOKENS_OF_PART = 65_536;
/** Beside a tenth, what a report of output may exceed its bound by. */
export const REPORTED_OUTPUT_SLACK_TOKENS = 64;

/**
 * Relayed events kept per stream for counting, should the upstream report no usage; beyond it only their text
 * is: a short response is never looked at.
 */
export const TRANSCRIPT_EVENTS_BYTES_MAX = 64 * 1024;

/**
 * Relayed text kept per stream, some 8,000 tokens, more than nearly all responses have; beyond it the count
 * is scaled up.
 */
export const TRANSCRIPT_CHARS_MAX = 32 * 1024;

/**
 * Text that is given to the tokenizer; beyond it the count is an estimate from the bytes. It takes 0.4 s of
 * prose, 1.6 s at worst.
 */
export const TOKENIZER_BYTES_MAX = 4 * 1024 * 1024;

/**
 * How long a caller may hold up a stream by not reading it, summed over the call. `total_timeout_ms` does not
 * run meanwhile, so this is what bounds the provider connection of a caller who takes a byte now and then. 1
 * MB at 300 bytes a second is through by then.
 */
export const HELD_UP_MS_MAX = 3_600_000;

/**
 * A caller holds a stream up who let the provider wait for so long more than the stream has run since. Two
 * threads that pass a fast stream on pause it for a few milliseconds all the time, and no provider gives up
 * over that.
 */
export const HELD_UP_MS_MIN = 100;

/** So much of a pause is remembered: a stream that has run for so long after it fails for other reasons. */
export const HELD_UP_MS_REMEMBERED = 10_000;

/**
 * One job's work on a counter thread, then the next one has its turn: what a small job waits for each account
 * before it.
 */
export const COUNTER_TURN_MS = 250;
/**
 * Turns of one count; what is left is estimated. Twice what the worst text takes, for a machine that has
 * other work.
 */
export const COUNT_TURNS_MAX = 16;
/**
 * The end of a client's answer waits for a count so long, then for an estimate: a hundred turns of others on
 * two threads.
 */
export const COUNT_WAIT_MS_MAX = 10_000;
/** A turn cannot take so long: a counter thread that needs more is stuck, and replaced. */
export const COUNTER_STUCK_MS = 15_000;
/**
 * What waits for a counter thread weighs so much at least; a large body waits at this weight, because its
 * bytes count elsewhere. So 2,048 bodies wait at most, of one account a thousand; of texts to count 128 MB,
 * and the longest is 10 MB.
 */
export const COUNTER_JOB_BYTES_MIN = 64 * 1024;
export const COUNTER_QUEUE_BYTES_MAX = 128 * 1024 * 1024;
export const COUNTER_ACCOUNT_BYTES_MAX = 64 * 1024 * 1024;

/** Messages in one request: more is an attack on the parser, not a conversation. */
export const MESSAGES_MAX = 100_000;

/**
 * Levels of objects and arrays in a request. Schemas of tools, the deepest that clients send, have ten to
 * thirty; decoders of upstreams give up from 100 (Rust) or 1,000 (Python), each in its own way.
 */
export const BODY_NESTING_MAX = 64;

/**
 * Values in a request, those within others counted too: MESSAGES_MAX messages of a role, a name and a text
 * are 400,000. Reading makes no tree of them, but who counts tokens and every upstream does.
 */
export const BODY_VALUES_MAX = 500_000;

/**
 * Members of one object that the gateway reads (the request, a message, a part, a tool call), whose names are
 * kept while it is read. Clients send some thirty.
 */
export const BODY_MEMBERS_MAX = 1_000;

/** A model's name that is looked for in the first piece of a body; longer ones are unknown anyway. */
export const BODY_MODEL_BYTES_MAX = 4_096;

/** An `Authorization` header or a path longer than this is refused unread. */
export const AUTHORIZATION_CHARS_MAX = 512;

/** Characters of an `Idempotency-Key`; clients make UUIDs, of 36. */
export const IDEMPOTENCY_KEY_CHARS_MAX = 255;
export const IDEMPOTENCY_KEY_PATTERN = '^[ -~]+$';

/**
 * Records of ended calls that a listener can leave for the main thread, at least: more than one listener ends
 * in two seconds, and the main thread is asked to take them when half are there. 80 bytes each, 5 MB.
 */
export const JOURNAL_RECORDS_MIN = 65_536;

/**
 * The end of a response waits so long for its charge to reach the disk; a disk that needs longer is taken for
 * broken.
 */
export const COMMIT_WAIT_MS_MAX = 10_000;

/**
 * A listener that ends has cut its calls and waits so long for what is to be charged for them: an upstream
 * worker aborts a thousand calls and counts what was relayed of them in a fraction of a second.
 */
export const CUT_CALLS_WAIT_MS_MAX = 2_000;

/**
 * Rows of usage that are kept in memory because they may grow further; beyond it they are read from disk when
 * needed.
 */
export const USAGE_ROWS_HOT_MAX = 200_000;

/**
 * Rows that wait in memory while the disk takes none, some 100 MB; then new calls are refused whatever the
 * settings say.
 */
export const ACCOUNTING_ROWS_WAITING_MAX = 500_000;

/**
 * Models, and plans, that one process can have had, those that a reload removed counted: their indices stand
 * in journals and accounts and are not given to others. Four times what the settings can name at once, in
 * every thread's catalogue.
 */
export const CATALOG_ENTRIES_MAX = 4_096;

/**
 * How long a reload waits for the threads to take new settings: they do so within a turn of their event
 * loops, and one that has not after so long is stuck.
 */
export const SETTINGS_WAIT_MS_MAX = 10_000;

/**
 * Memory that a body takes while its call is in work, in its own lengths: once as it was read or as it goes
 * upstream, and once more for what is made of it on its way, such as the copy that has the upstream's name of
 * the model.
 */
export const BODY_MEMORY_FACTOR = 2;

/**
 * Bodies up to this are not counted among those in work, so that a small call pays for no count. All calls in
 * flight hold some 80 MB of them by default; the next page would be paid for by nearly every call.
 */
export const BODY_BYTES_UNCOUNTED = 4 * 1024;

/**
 * A body must be whole after so long, also one that moves: 10 MB at 6 KB a second. Each holds a connection
 * and its memory.
 */
export const UPLOAD_MS_MAX = 1_800_000;
