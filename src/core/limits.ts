/**
 * Bounds that no setting changes, each with its reason. The bounds that an operator may change are in
 * config/schema.ts. Nearly every folder uses some; any thread.
 *
 * Must hold: a bound that fits a width in memory, such as 20 bits of a word, is not raised without that
 * width. Tests: test/unit/ledger/layout.test.ts (widths), test/unit/protocol/json-reader.test.ts (bodies).
 */

/** Requests a minute that a plan may allow. ledger/window.ts counts them in 20 bits. */
export const REQUESTS_PER_MINUTE_MAX = 1_000_000;

/** Calls a day that a plan may allow: a million a minute for a whole day. */
export const CALLS_PER_DAY_MAX = 1_440_000_000;

/** Calls in flight in one process. A call's slot takes 20 bits of its id (channel/open-calls.ts). */
export const CALLS_IN_FLIGHT_MAX = 1 << 20;

/** Listeners and workers of one process. Each pair has a channel of its own, so their product stays small. */
export const LISTENERS_MAX = 64;
export const WORKERS_MAX = 64;

/** Gateway processes of one host: more than hosts have cores for. */
export const PROCESSES_MAX = 64;

/**
 * Bytes of the largest store. It is address space, not memory: a million accounts with two million keys take
 * about 2 GB of it.
 */
export const STORE_BYTES_MAX = 16 * 1024 ** 3;

/** Bytes of the longest response that the response cache keeps. */
export const CACHED_BYTES_MAX = 1024 * 1024;

/** Two, so that one thread can parse a large body while the other counts the tokens of a long prompt. */
export const COUNTER_THREADS_MAX = 2;

/** Accounts in one process. Their records take 1 GiB of addresses, which 32-bit indices reach. */
export const ACCOUNTS_MAX = 4_194_304;

/** Groups of accounts in one process. Commands and pages read all of them at once. */
export const GROUPS_MAX = 65_536;

/** Groups in which an account can be at once. They are few, because each call takes from all of them. */
export const GROUP_DEPTH_MAX = 4;

/**
 * Accounts and keys that have a quota record in one process: keys with quotas besides requests a minute and
 * calls a day, and accounts on plans with such quotas that have called since the start. They take 640 MiB.
 */
export const QUOTA_SCOPES_MAX = 1 << 20;
/** Pairs of an account and a model with a rule of its own that have been called since the start. */
export const MODEL_SCOPES_MAX = 1 << 18;

/** Keys in one process. Their records in the key table take 768 MiB. */
export const KEYS_MAX = 16_777_216;

/**
 * Scopes of upstreams with quotas since the start of a process: a provider's key at an address is one scope.
 * Their records take 1 MiB of addresses; unused records take no memory.
 */
export const UPSTREAM_SCOPES_MAX = 1_024;

/**
 * Bytes of the calls that wait in one worker because their upstreams are at their limits. Each call counts
 * with its body and UPSTREAM_QUEUE_CALL_BYTES, so at most 1,024 wait. The bound is a worker's, because a
 * sweep of the queue holds up that worker's streams. The memory of all queues of a process is bounded by
 * `limits.bodies_in_work_bytes` and `limits.calls_in_flight`, which a call takes of before it waits.
 */
export const UPSTREAM_QUEUE_BYTES_MAX = 64 * 1024 * 1024;
export const UPSTREAM_QUEUE_CALL_BYTES = 64 * 1024;

/**
 * Bytes of one event of an upstream's stream. The longest was a tool call of some 100 KB. Events of Gemini
 * with images are longer; they count toward WHOLE_RESPONSES_BYTES_MAX.
 */
export const SSE_EVENT_BYTES_MAX = 1024 * 1024;

/** Bytes of one non-streamed response. A worker buffers it until it is validated. */
export const UPSTREAM_RESPONSE_BYTES_MAX = 16 * 1024 * 1024;

/**
 * Bytes of all non-streamed responses that a process buffers for each worker thread (with `workers: 0` for
 * each listener), while they arrive and while slow clients read them: 16 of the longest.
 */
export const WHOLE_RESPONSES_BYTES_MAX = 16 * UPSTREAM_RESPONSE_BYTES_MAX;
/** Non-streamed responses up to this size take no memory budget: each holds no more than a stream does. */
export const WHOLE_RESPONSE_BYTES_UNCOUNTED = 256 * 1024;

/** Characters of an upstream's error message that the caller gets. A longer message is cut. */
export const UPSTREAM_MESSAGE_CHARS_MAX = 1_000;

/** Bytes that one frame from worker to listener carries: a large response must not delay the others. */
export const FRAME_BYTES_MAX = 64 * 1024;

/**
 * Prompt tokens that a provider may report beyond one for each byte of the body, because it adds text of its
 * own: instructions for tools, the model's template. A report of more is not believed
 * (upstream/usage-bounds.ts, which uses the bounds of parts below too).
 */
export const PROMPT_TOKENS_BESIDE_BODY = 4_096;
/**
 * The same for each further document of a rerank, which the model reads in a prompt of its own: Qwen3's
 * template has some 70 (https://docs.primeintellect.ai/api-reference/inference-rerank, read 2026-11).
 */
export const PROMPT_TOKENS_BESIDE_DOCUMENT = 128;
/**
 * Prompt tokens that a provider may report for each part that the body names in a few bytes: an image, a
 * document, a video, a sound, or a tool that the provider runs. The bound is as much as a model reads: an
 * hour of video has a million tokens, and Gemini takes videos and documents by address in any such part.
 */
export const PROMPT_TOKENS_OF_PART = 1_048_576;
/** How many such parts count. If more did, a body of many names would make any report believable. */
export const PROMPT_PARTS_MAX = 64;
/** Output tokens by which a report may exceed its bound, besides a tenth of the bound. */
export const REPORTED_OUTPUT_SLACK_TOKENS = 64;

/**
 * Bytes of relayed events that a worker keeps of each stream, to count tokens if the upstream reports no
 * usage. If there are more, the worker parses the events and keeps their text alone. So it never parses a
 * short response for the count.
 */
export const TRANSCRIPT_EVENTS_BYTES_MAX = 64 * 1024;

/**
 * Characters of relayed text that a worker keeps of each stream: some 8,000 tokens, more than nearly all
 * responses have. If there are more, the count is scaled up.
 */
export const TRANSCRIPT_CHARS_MAX = 32 * 1024;

/**
 * Bytes of text that the tokenizer counts, in 0.4 s of prose and 1.6 s at worst. The tokens of a longer text
 * are estimated from its bytes.
 */
export const TOKENIZER_BYTES_MAX = 4 * 1024 * 1024;

/**
 * How long a caller may hold up a stream by not reading it, summed over the call. `total_timeout_ms` stops
 * meanwhile, so this alone bounds how long a caller who takes a byte now and then keeps a connection to the
 * provider. An hour is enough for 1 MB at 300 bytes a second. http1/call.ts uses this and the next two.
 */
export const HELD_UP_MS_MAX = 3_600_000;

/**
 * A caller holds a stream up if its pauses, less the time that the stream has run since, add up to this. The
 * threads that relay a fast stream often pause it for some milliseconds, over which no provider gives up.
 */
export const HELD_UP_MS_MIN = 100;

/** The most that pauses add up to. If a stream has run for so long since, they do not explain its failure. */
export const HELD_UP_MS_REMEMBERED = 10_000;

/**
 * How long a counter thread works on one job before it takes the next. A small job waits at most so long for
 * each account whose turn is earlier.
 */
export const COUNTER_SLICE_MS = 250;
/** Time slices of one count; the rest is estimated. Twice what the worst text needs on an idle machine. */
export const COUNT_SLICES_MAX = 16;
/** How long a response's end waits for a count before an estimate: 80 slices of others on two threads. */
export const COUNT_WAIT_MS_MAX = 10_000;
/** A counter thread whose time slice takes longer counts as stuck, and the main thread replaces it. */
export const COUNTER_STUCK_MS = 15_000;
/**
 * Weights, in bytes, of the jobs that wait for a counter thread. A text to count weighs its bytes, and at
 * least the minimum. A large body to parse or translate weighs only the minimum, because
 * `limits.bodies_in_work_bytes` bounds the bodies. So at most 2,048 bodies wait, 1,024 of them of one
 * account; or 128 MB of texts.
 */
export const COUNTER_JOB_BYTES_MIN = 64 * 1024;
export const COUNTER_QUEUE_BYTES_MAX = 128 * 1024 * 1024;
export const COUNTER_ACCOUNT_BYTES_MAX = 64 * 1024 * 1024;

/**
 * Calls whose clients have left and whose upstreams finish all the same (`when_client_leaves: finish`): all
 * of a process, and those of one account. A process may have so many for each worker thread (with
 * `workers: 0` for each listener), whichever threads the calls are in. They are bounded because it costs a
 * client nothing to leave, and each such call keeps a connection, a call slot, its body, and some 100 KiB of
 * text that may have to be counted.
 */
export const LEFT_CALLS_MAX = 512;
export const LEFT_CALLS_OF_ACCOUNT_MAX = LEFT_CALLS_MAX / 4;

/** Messages in one request. A request with more is an attack on the parser, not a conversation. */
export const MESSAGES_MAX = 100_000;

/**
 * Levels of objects and arrays in a request. Schemas of tools, the deepest that clients send, have ten to
 * thirty. Decoders of upstreams give up at 100 (Rust) or 1,000 (Python), each with another error.
 */
export const BODY_NESTING_MAX = 64;

/**
 * Values in a request, nested ones included. MESSAGES_MAX messages of a role, a name and a text make 400,000.
 * The gateway builds no tree when it reads them, but the token counter and every upstream do.
 */
export const BODY_VALUES_MAX = 500_000;

/**
 * Members of one object that the gateway reads: the request, a message, a part, a tool call. It keeps their
 * names while it reads the object. Clients send some thirty.
 */
export const BODY_MEMBERS_MAX = 1_000;
/**
 * Unknown names of all objects of one body together. To fold and remember a name takes up to 0.7 µs, more
 * than anything else in a body. With this bound no body takes a counter thread longer than COUNTER_SLICE_MS.
 */
export const BODY_OTHER_NAMES_MAX = 50_000;
/**
 * Members in all of a body that is parsed into a tree, as at all doors but chat. V8 takes up to 1 µs for a
 * name that is new to it: 490,000 new names took 0.4 to 0.5 s.
 */
export const BODY_TREE_MEMBERS_MAX = 100_000;

/** Longest name of a model, in bytes, that the listener looks for in the first piece of a body. */
export const BODY_MODEL_BYTES_MAX = 4_096;

/** Characters of an `Authorization` header or of a path. A request with a longer one is rejected unread. */
export const AUTHORIZATION_CHARS_MAX = 512;

/** Characters of an `Idempotency-Key`. Clients send UUIDs, of 36. */
export const IDEMPOTENCY_KEY_CHARS_MAX = 255;
/** Printable ASCII. Text of a regular expression, because the OpenAPI document needs it as such. */
export const IDEMPOTENCY_KEY_PATTERN = '^[ -~]+$';

/**
 * Records that a listener's journal holds, at least: 7 MB at 104 bytes each. One listener ends fewer calls in
 * two seconds, and it asks the main thread to drain the journal when half of the records are full.
 */
export const JOURNAL_RECORDS_MIN = 65_536;

/** How long a response's end waits for its charge on disk (`durability: commit`). A slower disk is broken. */
export const COMMIT_WAIT_MS_MAX = 10_000;

/**
 * How long a listener that stops waits for the charges of the calls that it has cut. Most take a fraction of
 * a second. If the count of a call's tokens never comes, an estimate takes its place after COUNT_WAIT_MS_MAX,
 * so that the call is charged all the same.
 */
export const CUT_CALLS_WAIT_MS_MAX = COUNT_WAIT_MS_MAX + 2_000;

/**
 * How long a gateway may take to end after `drain_timeout_ms`, before the supervisor kills it: the last flush
 * takes milliseconds, and more on a slow disk. The files below deploy/ give a gateway that time too: the
 * tests in test/deploy compare them.
 */
export const EXIT_GRACE_MS = CUT_CALLS_WAIT_MS_MAX + 6_000;

/** Rows of usage kept in memory because calls may add to them. Other rows are read from disk if needed. */
export const USAGE_ROWS_HOT_MAX = 200_000;

/**
 * Rows of accounting that wait in memory, some 100 MB, while the disk takes none. If more wait, new calls are
 * rejected, whatever `on_store_error` is.
 */
export const ACCOUNTING_ROWS_WAITING_MAX = 500_000;

/**
 * Models, or plans, that one process can have had, including those that a reload removed. Journals and
 * accounts hold their indices, so no index is given to another model or plan. Four times what the settings
 * can name at once; the catalogue of every thread holds them all. ledger/model-scopes.ts has 14 bits of a
 * word for a model.
 */
export const CATALOG_ENTRIES_MAX = 4_096;

/** How long a reload waits for all threads. One that is not stuck takes the settings within a turn. */
export const SETTINGS_WAIT_MS_MAX = 10_000;

/**
 * Memory that a body takes while its call is in work, in lengths of the body: one for the body itself, one
 * for copies on its way, such as the copy with the upstream's name of the model.
 */
export const BODY_MEMORY_FACTOR = 2;

/**
 * Bodies up to this size do not count toward the memory budget, which saves small calls the counting. By
 * default all calls in flight together hold some 80 MB of such bodies.
 */
export const BODY_BYTES_UNCOUNTED = 4 * 1024;

/** How long a whole body may take: 10 MB at 6 KB a second. An upload holds a connection and memory. */
export const UPLOAD_MS_MAX = 1_800_000;
