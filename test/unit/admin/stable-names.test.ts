/**
 * Names that operators' programs and generated clients use: the operations of the admin interface, their
 * parameters, and the fields of their responses. None is renamed or removed. Each name counts once, wherever
 * it is, so a name that goes at one place and stays at another is not noticed.
 */
import { readFileSync } from 'node:fs';
import t from 'tap';
import { adminDocument } from '#src/admin/openapi.js';
import { ADMIN_ROUTES } from '#src/admin/routes.js';

interface Schema {
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly anyOf?: readonly Schema[];
  readonly patternProperties?: Readonly<Record<string, Schema>>;
}

interface Operation {
  readonly operationId: string;
  readonly parameters?: readonly { readonly name: string; readonly in: string }[];
  readonly requestBody?: { readonly content: Readonly<Record<string, { readonly schema: Schema }>> };
  readonly responses: Readonly<Record<string, { readonly content: Record<string, { schema: Schema }> }>>;
}

/** The names of all fields in the schema, at every depth. */
function* fieldsIn({
  properties = {},
  patternProperties = {},
  items,
  anyOf = [],
}: Schema): Generator<string> {
  yield* Object.keys(properties);
  const schemas = [...Object.values(properties), ...Object.values(patternProperties), ...anyOf];
  for (const schema of items === undefined ? schemas : [...schemas, items]) yield* fieldsIn(schema);
}

function* namesOf(method: string, path: string, operation: Operation): Generator<string> {
  const { operationId, parameters = [], requestBody, responses } = operation;
  yield `${method.toUpperCase()} ${path} ${operationId}`;
  for (const parameter of parameters) yield `${parameter.in} ${parameter.name}`;
  for (const { schema } of Object.values(requestBody?.content ?? {}))
    for (const name of fieldsIn(schema)) yield `body ${name}`;
  for (const { schema } of Object.values(responses['200']?.content ?? {}))
    for (const name of fieldsIn(schema)) yield `response ${name}`;
}

void t.test('no name of the admin interface is renamed or removed', (t) => {
  const { paths } = JSON.parse(JSON.stringify(adminDocument(ADMIN_ROUTES))) as {
    paths: Readonly<Record<string, Readonly<Record<string, Operation>>>>;
  };
  const names = new Set(
    Object.entries(paths).flatMap(([path, operations]) =>
      Object.entries(operations).flatMap(([method, operation]) => [...namesOf(method, path, operation)]),
    ),
  );
  const kept = new Set(
    readFileSync(new URL('../../../../test/unit/admin/stable-names.txt', import.meta.url), 'utf8')
      .split('\n')
      .filter((line) => line !== ''),
  );
  t.same(
    [...kept].filter((name) => !names.has(name)),
    [],
    'each name of stable-names.txt is there',
  );
  t.same(
    [...names].filter((name) => !kept.has(name)),
    [],
    'each name is in stable-names.txt: add these',
  );
  t.end();
});
