// A filter above the glossary. It looks into all four languages and the definition; accents may be left out.
(() => {
  const list = document.querySelector("dl.glossary");
  const plain = (text) => text.toLowerCase().normalize("NFD").replace(/[\u0300-\u036f]/g, "").replaceAll("đ", "d");
  const terms = [...list.querySelectorAll("dt")].map((name) => {
    const about = name.nextElementSibling;
    const texts = [name, ...about.querySelectorAll(":scope > p:first-of-type, [lang]")];
    return { parts: [name, about], text: plain(texts.map((part) => part.textContent).join(" ")) };
  });
  const form = document.createElement("form");
  form.className = "glossary-filter";
  form.innerHTML = '<label>Filter <input type="search" autocomplete="off"></label> <output></output>';
  const [input, output] = [form.querySelector("input"), form.querySelector("output")];
  const show = () => {
    const wanted = plain(input.value.trim());
    const found = terms.filter(({ parts, text }) => {
      const fits = text.includes(wanted);
      parts.forEach((part) => { part.hidden = !fits; });
      return fits;
    });
    output.textContent = `${found.length} of ${terms.length} terms`;
  };
  const clear = () => { input.value = ""; show(); };
  form.addEventListener("submit", (event) => event.preventDefault());
  input.addEventListener("input", show);
  window.addEventListener("hashchange", clear); // a link to a term must find it there
  list.before(form);
  show();
})();
