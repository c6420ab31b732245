/** The providers by their names. `openai` and `azure` are not translated. Upstream worker. */
import type { ProviderName } from '../core/provider-names.js';
import type { Provider } from './provider.js';

export const PROVIDERS: Readonly<Partial<Record<ProviderName, Provider>>> = {};
