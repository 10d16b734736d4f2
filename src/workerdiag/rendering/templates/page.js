document.querySelectorAll(".wd-copy").forEach(function (button) {
  button.hidden = false;
  button.parentNode.classList.add("wd-copyable");
  button.addEventListener("click", function () {
    var code = button.parentNode.querySelector("code"), done = function () {
      button.textContent = "Copied";
      setTimeout(function () { button.textContent = "Copy"; }, 2000);
    }, select = function () {
      var range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      if (document.execCommand("copy")) { done(); }
    };
    if (navigator.clipboard) { navigator.clipboard.writeText(code.textContent).then(done, select); }
    else { select(); }
  });
});
if (window.PerformanceObserver) {
  new PerformanceObserver(function (list, observer) {
    observer.disconnect();
    document.documentElement.classList.remove("wd-later");
  }).observe({ type: "paint", buffered: true });
}
