// Formulas: arithmatex marks them in the page, KaTeX sets them. Nothing is fetched.
document.addEventListener("DOMContentLoaded", () => {
  const delimiters = [
    { left: "\\(", right: "\\)", display: false },
    { left: "\\[", right: "\\]", display: true },
  ];
  document.querySelectorAll(".arithmatex").forEach((element) => renderMathInElement(element, { delimiters }));
});
