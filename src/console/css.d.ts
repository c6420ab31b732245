/** Lets main.tsx import style sheets, which scripts/build-console.mjs puts together into one file. */
declare module '*.css';
