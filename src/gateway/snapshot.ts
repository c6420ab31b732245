/**
 * From the settings of the file to the plain records that threads work with. Main thread, at start.
 */
import { invariant } from '../core/errors.js';
import { picoUnitsPerToken } from '../core/money.js';
import type { PicoUnits } from '../core/units.js';
import { matchesModel } from '../config/model-pattern.js';
import type { Settings } from '../config/schema.js';
import type { Catalog, ModelEntry, PlanEntry } from '../registry/catalog.js';
import type { ModelRoute, UpstreamTarget } from '../upstream/target.js';

type ModelSettings = Settings['models'][number];
type UpstreamSettings = ModelSettings['upstreams'][number];

/** What every thread may know. */
export function catalogOf(settings: Settings): Catalog {
  const models = settings.models.map((model): ModelEntry => ({
    id: model.id,
    ownedBy: model.owned_by,
    createdSeconds: model.created,
    price: {
      inputPicoUnits: tokenPrice(model.price.input),
      cachedInputPicoUnits: tokenPrice(model.price.cached_input ?? model.price.input),
      outputPicoUnits: tokenPrice(model.price.output),
    },
    outputTokensMax: model.max_output_tokens,
  }));
  const plans = settings.plans.map((plan): PlanEntry => ({
    id: plan.id,
    requestsPerMinute: plan.requests_per_minute,
    callsPerDay: plan.calls_per_day,
    modelIndices: models.flatMap((model, index) =>
      plan.models.some((pattern) => matchesModel(pattern, model.id)) ? [index] : [],
    ),
  }));
  return { models, plans };
}

/** Where the calls go, with the providers' keys: for upstream workers alone. */
export function routesOf(settings: Settings): ModelRoute[] {
  return settings.models.map((model) => ({
    id: model.id,
    tokenizer: model.tokenizer,
    targets: model.upstreams
      .map((upstream) => targetOf(upstream, model))
      .sort((left, right) => left.priority - right.priority),
  }));
}

function targetOf(upstream: UpstreamSettings, model: ModelSettings): UpstreamTarget {
  const url = new URL(upstream.url);
  const isEcho = url.protocol === 'echo:';
  return {
    name: isEcho ? 'echo' : url.host,
    origin: isEcho ? 'echo:' : url.origin,
    path: `${url.pathname.replace(/\/$/, '')}/chat/completions${url.search}`,
    key: upstream.key,
    headers: upstream.headers,
    model: upstream.model === model.id ? undefined : upstream.model,
    weight: upstream.weight,
    priority: upstream.priority,
    connectTimeoutMs: upstream.connect_timeout_ms,
    firstByteTimeoutMs: upstream.first_byte_timeout_ms,
    idleTimeoutMs: upstream.idle_timeout_ms,
    totalTimeoutMs: upstream.total_timeout_ms,
    connectionsMax: upstream.connections_max,
    breakerFailuresMax: upstream.breaker_failures,
    ca: upstream.ca,
  };
}

function tokenPrice(text: string): PicoUnits {
  const price = picoUnitsPerToken(text);
  invariant(price !== undefined, 'prices were checked when the settings were read');
  return price;
}
