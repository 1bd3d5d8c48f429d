'use strict';
(() => {
  const field = document.getElementById('search');
  const results = document.getElementById('results');
  const article = document.querySelector('article');
  const most = 20;

  // score counts how often the words are found, in headings ten times; 0 if one is missing.
  const score = (section, words) => {
    const heading = (section.p + ' ' + section.h).toLowerCase(), text = section.w.toLowerCase();
    let sum = 0;
    for (const word of words) {
      const n = 10 * (heading.split(word).length - 1) + (text.split(word).length - 1);
      if (n === 0) return 0;
      sum += Math.min(n, 30);
    }
    return sum;
  };

  // excerpt shows the text around the first word, with the words marked.
  const excerpt = (section, words) => {
    const low = section.w.toLowerCase();
    const at = Math.max(0, Math.min(...words.map((w) => low.indexOf(w)).filter((i) => i >= 0).concat(low.length)) - 60);
    const line = document.createElement('small');
    let rest = section.w.slice(at === low.length - 60 ? 0 : at, at + 240);
    while (rest) {
      const l = rest.toLowerCase();
      const next = words.map((w) => [l.indexOf(w), w.length]).filter(([i]) => i >= 0).sort((a, b) => a[0] - b[0])[0];
      if (!next) break;
      line.append(rest.slice(0, next[0]));
      const mark = document.createElement('mark');
      mark.textContent = rest.slice(next[0], next[0] + next[1]);
      line.append(mark);
      rest = rest.slice(next[0] + next[1]);
    }
    line.append(rest);
    return line;
  };

  const search = () => {
    const words = field.value.toLowerCase().split(/\s+/).filter((w) => w.length > 1);
    results.replaceChildren();
    results.hidden = words.length === 0;
    article.hidden = words.length > 0;
    if (words.length === 0) return;
    const hits = window.searchIndex.map((s) => [score(s, words), s]).filter(([n]) => n > 0).sort((a, b) => b[0] - a[0]).slice(0, most);
    for (const [, section] of hits) {
      const item = document.createElement('li'), link = document.createElement('a');
      link.href = section.a;
      link.textContent = section.h === section.p ? section.p : section.p + ': ' + section.h;
      link.addEventListener('click', () => { field.value = ''; search(); });
      item.append(link, excerpt(section, words));
      results.append(item);
    }
    if (hits.length === 0) {
      const item = document.createElement('li');
      item.textContent = 'Nothing has all of these words.';
      results.append(item);
    }
  };

  field.form.addEventListener('submit', (event) => event.preventDefault());
  field.addEventListener('input', search);
  document.addEventListener('keydown', (event) => {
    if (event.key === '/' && document.activeElement !== field) { event.preventDefault(); field.focus(); }
    if (event.key === 'Escape') { field.value = ''; search(); }
  });
})();
