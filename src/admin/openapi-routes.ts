/**
 * `/admin/v1/openapi.json`: the document of all routes. Main thread.
 */
import { Type } from 'typebox';
import { jsonText } from '../core/json-text.js';
import { adminDocument } from './openapi.js';
import { JSON_TYPE, TextAnswer, defineRoute, type Route } from './route.js';

/** `routes` gives all routes, this one among them; the document is made once, when it is first asked for. */
export function openapiRoute(routes: () => readonly Route[]): Route {
  let text: string | undefined;
  return defineRoute({
    method: 'GET',
    path: '/openapi.json',
    summary: 'Show this document.',
    answerSchema: Type.Object({ openapi: Type.Literal('3.1.0') }, { additionalProperties: true }),
    answer: () => new TextAnswer(JSON_TYPE, (text ??= jsonText(adminDocument(routes())))),
  });
}
