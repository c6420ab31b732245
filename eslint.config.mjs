import regexp from 'eslint-plugin-regexp';
import tseslint from 'typescript-eslint';

export default tseslint.config(
  {
    ignores: [
      'dist/',
      'build/',
      'data/',
      'node_modules/',
      '.tap/',
      'bench/peers/python/',
      'bench/peers/rust/',
    ],
  },
  {
    files: ['**/*.ts', '**/*.tsx', '**/*.cts'],
    extends: [tseslint.configs.strictTypeChecked, tseslint.configs.stylisticTypeChecked],
    languageOptions: {
      parserOptions: {
        project: ['./tsconfig.json', './test/tsconfig.json', './src/console/tsconfig.json'],
        tsconfigRootDir: import.meta.dirname,
      },
    },
    rules: {
      // Numbers in messages are wanted: a refusal names what it got.
      '@typescript-eslint/restrict-template-expressions': [
        'error',
        { allowNumber: true, allowBoolean: true },
      ],
      '@typescript-eslint/no-unused-vars': ['error', { argsIgnorePattern: '^_' }],
      // Typed arrays are read by index everywhere; the index is in bounds by construction of the layout files.
      '@typescript-eslint/no-non-null-assertion': 'off',
      '@typescript-eslint/no-confusing-void-expression': ['error', { ignoreArrowShorthand: true }],
      '@typescript-eslint/prefer-literal-enum-member': 'off',
      '@typescript-eslint/consistent-type-imports': 'error',
      'no-restricted-properties': [
        'error',
        {
          object: 'AbortSignal',
          property: 'any',
          message:
            'On Node 20 a collection of garbage may take it, and then it is never aborted: see callWithin.',
        },
      ],
      // The formatter holds the width of code, but not of comments.
      'max-len': [
        'error',
        {
          code: 1_000,
          comments: 110,
          ignoreUrls: true,
          ignoreStrings: true,
          ignoreTemplateLiterals: true,
          ignoreRegExpLiterals: true,
        },
      ],
    },
  },
  {
    files: ['src/**/*.ts', 'src/**/*.tsx', 'src/**/*.cts'],
    plugins: { regexp },
    rules: {
      // Callers and upstreams send texts of megabytes: a pattern must not take time that grows with the
      // square of its text (test/hostile/long-texts.test.ts).
      'regexp/no-super-linear-backtracking': ['error', { report: 'certain' }],
      'regexp/no-super-linear-move': ['error', { report: 'certain', ignoreSticky: true }],
    },
  },
);
