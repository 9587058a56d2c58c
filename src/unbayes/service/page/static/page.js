// Follows what the worker does, and loads the page again when it is done.
(() => {
  const work = document.querySelector("[data-progress]");
  if (!work) return;
  const bar = document.getElementById("bar");
  const now = document.getElementById("work-now");
  const said = document.getElementById("work-said");
  let quarter = null;

  const source = new EventSource(work.dataset.progress);
  source.addEventListener("progress", (event) => {
    const { sentence, done, total } = JSON.parse(event.data);
    now.textContent = sentence;
    if (total) {
      bar.max = total;
      bar.value = done;
    } else {
      bar.removeAttribute("value");
    }
    // A screen reader is told in quarters.
    const reached = total ? Math.floor((4 * done) / total) : -1;
    if (reached !== quarter) said.textContent = sentence;
    quarter = reached;
  });
  source.addEventListener("done", (event) => {
    source.close();
    now.textContent = said.textContent = JSON.parse(event.data).sentence;
    bar.max = bar.value = 1;
    setTimeout(() => window.location.assign(work.dataset.after), 600);
  });
})();
