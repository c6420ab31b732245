/**
 * Entry of the console: the page that the admin port serves at `/`. Browser.
 */
import { render } from 'preact';
import 'uplot/dist/uPlot.min.css';
import './style/theme.css';
import './style/layout.css';
import './style/controls.css';
import './style/pages.css';
import { App } from './app.js';
import { applyTheme, storedTheme } from './theme.js';

applyTheme(storedTheme());
render(<App />, document.getElementById('app')!);
