/** What `tollgate config schema` prints: the settings as JSON Schema, for editors and for reading. Main threads. */
import type { Declaration } from './annotations.js';
import { settingsDeclaration } from './schema.js';

/**
 * JSON Schema 2020-12 of the file. Differs from the declaration in one point: what has a default need not be written, whereas
 * in the program's settings it is always there.
 */
export function settingsJsonSchema(): object {
  return {
    $schema: 'https://json-schema.org/draft/2020-12/schema',
    ...asWritten(settingsDeclaration),
  };
}

/** The same as text: what the command prints, and the build writes to `dist/tollgate.schema.json`. */
export function settingsSchemaText(): string {
  return `${JSON.stringify(settingsJsonSchema(), null, 2)}\n`;
}

function asWritten(declaration: Declaration): Declaration {
  const properties = Object.entries(declaration.properties ?? {});
  return {
    ...declaration,
    ...(declaration.properties === undefined
      ? {}
      : {
          properties: Object.fromEntries(properties.map(([name, property]) => [name, asWritten(property)])),
          required: properties
            .filter(
              ([name, property]) =>
                declaration.required?.includes(name) === true && property.default === undefined,
            )
            .map(([name]) => name),
          additionalProperties: false,
        }),
    ...(declaration.items === undefined ? {} : { items: asWritten(declaration.items) }),
  };
}
