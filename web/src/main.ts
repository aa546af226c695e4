import { mount } from 'svelte';
import App from './app/App.svelte';
import { selection } from './state/selection.svelte';

// What a link says counts from the first look on.
selection.start();

const target = document.getElementById('app');
if (target) mount(App, { target });
