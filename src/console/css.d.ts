/** Style sheets are imported for the build, which puts them together. */
declare module '*.css';
